//! The options of the run-time switches, made from the engine's table.
//!
//! Promises: a command that takes switches has an option for every row and `--quality`, and nothing else.
//! Leaves values and contradictions to `engine::switches`, which judges options and variables alike.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use engine::switches::{CommandLine, QUALITY, Row, TABLE, Values, quality_help};

/// What the command line said about switches.
#[derive(Clone, Debug, Default)]
pub struct SwitchFlags(pub CommandLine);

/// The preset without its dashes.
fn quality() -> &'static str {
    QUALITY.trim_start_matches('-')
}

fn option(row: &'static Row) -> Arg {
    let arg = Arg::new(row.flag()).long(row.flag()).help(row.help()).help_heading("Switches");
    match row.values {
        Values::Flag => {
            arg.value_name("0|1").num_args(0..=1).require_equals(true).default_missing_value("1")
        }
        Values::Words(_) => arg.value_name("WORD"),
        Values::Count { .. } => arg.value_name("N"),
    }
}

impl Args for SwitchFlags {
    fn augment_args(command: Command) -> Command {
        let preset = Arg::new(quality()).long(quality()).help(quality_help());
        let preset = preset.action(ArgAction::SetTrue).help_heading("Switches");
        command.args(TABLE.map(option)).arg(preset)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SwitchFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |row: &'static Row| {
            let value = matches.get_one::<String>(row.flag())?;
            Some((row.option.to_owned(), value.clone()))
        };
        let options = TABLE.into_iter().filter_map(given).collect();
        Ok(Self(CommandLine { options, quality: matches.get_flag(quality()) }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
