//! The form of journals and records. The first line of a journal has it, and the number of lines after it: so a cut
//! file is detected.

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

/// Each journal and record begins with this text.
const HEAD: &str = "{\"form\":";
/// The form that this version writes and reads.
const FORM: u32 = 4;
const NO_FORM: &str = "it has no form: it is damaged, or finish the operation with the version that began it";

#[derive(Serialize, Deserialize)]
struct Head {
    form: u32,
    /// How many lines follow.
    entries: usize,
}

#[derive(Deserialize)]
struct Formed {
    form: Option<u32>,
}

/// The text of a first file that has these lines.
pub fn beginning(lines: &str) -> anyhow::Result<String> {
    let head = serde_json::to_string(&Head { form: FORM, entries: lines.lines().count() })?;
    Ok(format!("{head}\n{lines}"))
}

/// The lines of a first file. `None` if its writing was cut.
pub fn whole(text: &str) -> anyhow::Result<Option<&str>> {
    if HEAD.starts_with(text) {
        return Ok(None);
    }
    ensure!(text.starts_with(HEAD), NO_FORM);
    let Some((head, lines)) = text.split_once('\n') else { return Ok(None) };
    let head: Head = serde_json::from_str(head).context("its first line")?;
    check(head.form)?;
    Ok((lines.ends_with('\n') && lines.lines().count() == head.entries).then_some(lines))
}

/// The text of a record: its JSON, with the form first.
pub fn record_text(record: &impl Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_string(record)?;
    let fields = json.strip_prefix('{').context("a record is no object")?;
    Ok(format!("{HEAD}{FORM},{fields}"))
}

/// Refuses a record of another form.
pub fn check_record(text: &str) -> anyhow::Result<()> {
    let Formed { form } = serde_json::from_str(text)?;
    check(form.context(NO_FORM)?)
}

fn check(form: u32) -> anyhow::Result<()> {
    ensure!(
        form == FORM,
        "it has the format {form}, and this version knows {FORM}: finish the operation with the version that began it"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_forms_say_which_version_continues() {
        for (form, begin) in
            [("", "it has no form: "), ("\"form\":5,", "it has the format 5, and this version knows 4: ")]
        {
            let record = format!("{{{form}\"cluster\":\"shop\"}}");
            let journal = format!("{{{form}\"entries\":0}}\n");
            for error in [check_record(&record).unwrap_err(), whole(&journal).unwrap_err()] {
                let words = error.to_string();
                assert!(words.starts_with(begin), "{words}");
                assert!(words.ends_with("finish the operation with the version that began it"), "{words}");
            }
        }
        check_record("{\"form\":4,\"cluster\":\"shop\"}").unwrap();
    }
}
