//! The first file of a journal: its first line says how many follow, so that one that was cut is known.

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// How its text begins since it has a first line of its own, from which its end is known. What has none is of version
/// 0.1, which kept all entries in this one file and wrote it whole each time; it does not understand that line.
const HEAD: &str = "{\"form\":";
const FORM: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Head {
    form: u32,
    /// How many lines follow.
    entries: usize,
}

/// The text of a first file that has these lines.
pub fn beginning(lines: &str) -> anyhow::Result<String> {
    let head = serde_json::to_string(&Head { form: FORM, entries: lines.lines().count() })?;
    Ok(format!("{head}\n{lines}"))
}

/// The lines of a first file; none if its writing was cut.
///
/// # Errors
/// When another version wrote it.
pub fn whole(text: &str) -> anyhow::Result<Option<&str>> {
    if !text.starts_with(HEAD) && !HEAD.starts_with(text) {
        return Ok(Some(text));
    }
    let Some((head, lines)) = text.split_once('\n') else { return Ok(None) };
    let head: Head = serde_json::from_str(head).context("its first line")?;
    if head.form != FORM {
        anyhow::bail!(
            "it is of form {}, and {FORM} is known: another version wrote it; end with that what it began",
            head.form
        );
    }
    Ok((lines.ends_with('\n') && lines.lines().count() == head.entries).then_some(lines))
}
