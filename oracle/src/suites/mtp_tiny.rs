//! The multi-token-prediction block against one built from Hugging Face's modules in f64.

use engine::mtp::MtpSession;
use engine::rows::Rows;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{MtpModel, Profile};

use super::{Job, Prepared, Setup, checked, text, token_ids};
use crate::check::{Check, Lane, Question, Tally};
use crate::npy::read_npy;

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    vec![Job::new("mtp-tiny/float", || {
        let rule = "logits <= 1e-4, streams <= 1e-4 of the largest";
        let question = Question::new("mtp-tiny float", "HF modules f64", Lane::Bound, rule);
        let missing = ["hf-tiny", "mtp-tiny"].map(|folder| setup.truth(folder).err());
        if let Some(reason) = missing.into_iter().flatten().next() {
            return vec![question.not_run(reason)];
        }
        checked(question.clone(), || compare(setup, question))
    })]
}

fn compare(setup: &Setup, question: Question) -> Prepared<Check> {
    let folder = setup.truth("mtp-tiny")?;
    let model = setup.model(&setup.truth("hf-tiny")?.join("model.safetensors"))?;
    let block = MtpModel::open(&folder.join("mtp.safetensors"), &model.config).map_err(text)?;
    let tokens = token_ids(&folder.join("tokens.json"), &["tokens"])?;
    let input = read_npy(&folder.join("streams_in.npy")).map_err(text)?;
    let mut streams = Rows::empty(model.config.stream_dim());
    input.as_f32().chunks_exact(model.config.stream_dim()).for_each(|row| streams.push(row));
    let mut session = MtpSession::new(&model, &block, Profile::FLOAT);
    let mut output =
        session.forward(&tokens, &streams, Keep::All, &mut Unobserved).map_err(text)?;
    if let Some(fault) = setup.fault {
        fault.into_logits(&mut output.logits);
    }
    let logits = read_npy(&folder.join("logits_f64.npy")).map_err(text)?;
    let last = read_npy(&folder.join("streams_out_last8.npy")).map_err(text)?;
    let mut tally = Tally::new();
    for (index, row) in output.logits.iter().enumerate() {
        tally.bound(&format!("logits at {index}"), row, logits.row(index), 1e-4);
    }
    tally.note(format!("largest {:.1e}", tally.largest()));
    let count = output.streams.count();
    let tail = output.streams.slice(count - last.count()..count);
    tally.relative("streams of the last rows", tail.values(), &last.values, 1e-4);
    Ok(tally.finish(question))
}
