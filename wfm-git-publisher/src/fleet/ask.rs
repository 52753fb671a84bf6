//! `ask` of a device's file: what the fleet asks this one device for, once for each number.

use repo_model::ask::{Ask, AskedWord};
use repo_model::envelope::MAX_SERIAL;
use repo_model::yaml::{Field, Reader};

/// Reads `ask` of a device's file.
pub(super) fn read(field: Field<'_>) -> Option<Ask> {
    field.mapping(|reader: &mut Reader<'_>| {
        let (number, what) = (reader.required("number", number), reader.required("what", what));
        let deployment = reader.optional("deployment", |field| Some((field.clone().parse()?, field)));
        let what = what?;
        let deployment = match (what, deployment) {
            (AskedWord::Logs, None) => return reader.field().fail("`logs` needs a `deployment`"),
            (AskedWord::Diagnostics | AskedWord::Sync, Some((_, field))) => {
                return field.fail(format!("`{what}` is about the whole device"));
            }
            (_, deployment) => deployment.map(|(name, _)| name),
        };
        Some(Ask { number: number?, what: what.to_string(), deployment })
    })
}

fn number(field: Field<'_>) -> Option<u64> {
    match field.clone().integer()? {
        number @ 1..=MAX_SERIAL => Some(number),
        _ => field.fail_hint("must be a whole number from 1", "raise it by one for each time"),
    }
}

fn what(field: Field<'_>) -> Option<AskedWord> {
    let words: Vec<_> = AskedWord::TABLE.iter().map(|(word, _)| (word.as_str(), *word)).collect();
    field.choice(&words)
}
