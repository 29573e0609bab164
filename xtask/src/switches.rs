//! The options of the run-time switches, made from the engine's table.
//!
//! Promises: a command that takes switches has an option for every row and `--quality`, and nothing else.
//! Leaves values and contradictions to `engine::switches`, which judges options and variables alike.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use engine::switches::{CommandLine, QUALITY, Row, TABLE, Values};

/// What the command line said about switches.
#[derive(Clone, Debug, Default)]
pub struct SwitchFlags(pub CommandLine);

fn id(option: &'static str) -> &'static str {
    option.trim_start_matches('-')
}

fn option(row: &'static Row) -> Arg {
    let default = row.default.map_or("those of the machine".into(), |value| value.to_string());
    let help = format!("{} [{}; default: {default}]", row.what, row.values);
    let arg = Arg::new(id(row.option)).long(id(row.option)).help(help).help_heading("Switches");
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
        let sets =
            TABLE.into_iter().filter_map(|row| Some(format!("{} {}", row.option, row.quality?)));
        let help = format!("Preset: {}", sets.collect::<Vec<_>>().join(", "));
        let preset = Arg::new(id(QUALITY)).long(id(QUALITY)).help(help);
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
            let value = matches.get_one::<String>(id(row.option))?;
            Some((row.option.to_owned(), value.clone()))
        };
        let options = TABLE.into_iter().filter_map(given).collect();
        Ok(Self(CommandLine { options, quality: matches.get_flag(id(QUALITY)) }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
