//! A bundle: parts that share its size by their weights, and an index. Independent of the content.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::archive::{Archive, Keep};
use crate::redact::REMOVED;

/// The largest size of the index, in compressed bytes.
const INDEX: u64 = 32 << 10;

/// A part of a bundle.
pub struct Part<'a> {
    pub name: &'a str,
    /// Its description in the index. It may be empty.
    pub about: &'a str,
    /// Its share of the remaining room, relative to the weights of the parts after it.
    pub weight: u64,
    /// The part that is kept if the text is too long.
    pub keep: Keep,
}

/// A part, as the index lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub name: String,
    #[serde(skip)]
    about: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Outcome {
    Whole,
    Cut { bytes: usize },
    Failed { reason: String },
}

pub struct Bundle<W: Write> {
    archive: Archive<W>,
    directory: String,
    /// The weights of the parts that are yet to come.
    weights: u64,
    entries: Vec<Entry>,
}

impl<W: Write> Bundle<W> {
    /// Begins a bundle of at most `limit` bytes. All files are in `directory`. `weights` is the sum over all parts.
    pub fn new(writer: W, directory: &str, time: SystemTime, limit: u64, weights: u64) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let archive = Archive::new(writer, directory, seconds, limit);
        Self { archive, directory: directory.to_owned(), weights, entries: Vec::new() }
    }

    /// Adds a part, or the reason why it or its end is missing.
    pub fn add(&mut self, part: &Part<'_>, text: Result<String, String>) -> io::Result<()> {
        let Part { name, about, weight, keep } = *part;
        let share = self.archive.left().saturating_sub(INDEX) * weight / self.weights.max(1);
        self.weights = self.weights.saturating_sub(weight);
        let outcome = match text {
            Ok(text) => match self.archive.add(name, &text, share, keep)? {
                0 => Outcome::Whole,
                bytes => Outcome::Cut { bytes },
            },
            Err(reason) => Outcome::Failed { reason },
        };
        self.entries.push(Entry { name: name.to_owned(), about: about.to_owned(), outcome });
        Ok(())
    }

    /// The missing parts, each with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Failed { reason } => Some((entry.name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Writes the index. `of` is the source of the bundle.
    pub fn finish(mut self, of: &str) -> io::Result<(W, Vec<Entry>)> {
        let (index, left) = (self.index(of), self.archive.left());
        self.archive.add("README.txt", &index, left, Keep::Beginning)?;
        Ok((self.archive.finish()?, self.entries))
    }

    fn index(&self, of: &str) -> String {
        let mut text = format!(
            "{}\n\nA support bundle of {of}. All files are plain text or JSON. Secrets were removed:\n\
             each leaves {REMOVED} behind, or its field is missing. Logs that are too long lose their oldest part, lists their\n\
             end.\n\n",
            self.directory
        );
        for Entry { name, about, outcome } in &self.entries {
            text += &if about.is_empty() { name.clone() } else { format!("{name:<44}{about}") };
            text += &match outcome {
                Outcome::Whole => "\n".to_owned(),
                Outcome::Cut { bytes } => format!("  CUT: {bytes} bytes were left out\n"),
                Outcome::Failed { reason } => {
                    let state = if self.holds(name) { "INCOMPLETE" } else { "MISSING" };
                    format!("  {state}: {}\n", reason.replace('\n', " "))
                }
            };
        }
        text
    }

    /// Whether the bundle has a part, though a reason of the same name says why the rest is missing.
    fn holds(&self, name: &str) -> bool {
        let is_there = |entry: &Entry| entry.name == name && !matches!(entry.outcome, Outcome::Failed { .. });
        self.entries.iter().any(is_there)
    }
}

/// The name of a bundle's directory.
pub fn directory_name(of: &str, time: SystemTime) -> String {
    format!("kaas-support-{of}-{}", stamp(time))
}

/// A time for file names, in UTC (ISO 8601, basic format): `20261121T143000Z`.
pub fn stamp(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time.max(UNIX_EPOCH)).to_string().replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_names_cut_and_missing_parts() {
        let mut bundle = Bundle::new(Vec::new(), "x", UNIX_EPOCH, INDEX + 20_000, 3);
        let long: String = (0..20_000_u64).map(|n| format!("{:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        let part = |name, about| Part { name, about, weight: 1, keep: Keep::End };
        bundle.add(&part("a.json", "the first"), Ok("{}".to_owned())).unwrap();
        bundle.add(&part("b.txt", ""), Ok(long)).unwrap();
        bundle.add(&part("c.json", ""), Err("forbidden\nfor you".to_owned())).unwrap();
        assert_eq!(bundle.failed().collect::<Vec<_>>(), [("c.json", "forbidden\nfor you")]);
        let index = bundle.index("a test");
        let lines: Vec<&str> = index.lines().rev().take(3).collect();
        assert_eq!(
            (lines[2], lines[0]),
            (&*format!("{:<44}the first", "a.json"), "c.json  MISSING: forbidden for you")
        );
        assert!(lines[1].starts_with("b.txt  CUT: "), "{index}");
        let (content, entries) = bundle.finish("a test").unwrap();
        assert!(content.len() as u64 <= INDEX + 20_000, "{}", content.len());
        assert_eq!(serde_json::to_value(&entries[0]).unwrap(), serde_json::json!({"name": "a.json", "is": "whole"}));
    }

    #[test]
    fn part_without_its_end_is_incomplete() {
        let mut bundle = Bundle::new(Vec::new(), "x", UNIX_EPOCH, INDEX + 20_000, 1);
        let part = |weight| Part { name: "a.json", about: "", weight, keep: Keep::Beginning };
        bundle.add(&part(0), Err("no route".to_owned())).unwrap();
        bundle.add(&part(1), Ok("{}".to_owned())).unwrap();
        assert!(bundle.index("a test").ends_with("\na.json  INCOMPLETE: no route\na.json\n"));
    }

    #[test]
    fn times_are_dates() {
        let at = |seconds| stamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(4_102_444_799), "20991231T235959Z");
    }
}
