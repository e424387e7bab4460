//! The file of judgements: advisories that were examined and accepted for a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Row;

/// A judgement is examined again within this time.
const LONGEST: Duration = Duration::from_secs(400 * 24 * 3600);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// Names of advisories, each by its ID or one of its aliases.
    pub advisories: Vec<String>,
    pub components: Vec<String>,
    pub reason: String,
    /// The day of the judgement, such as 2026-11-28.
    pub date: String,
    /// The day from which it no longer counts.
    pub expires: String,
}

impl Judgement {
    pub fn is_of(&self, row: &Row) -> bool {
        let has = |id: &String| self.advisories.contains(id);
        self.components.contains(&row.component) && (has(&row.id) || row.aliases.iter().any(has))
    }

    pub fn has_expired(&self, now: SystemTime) -> bool {
        day(&self.expires).is_none_or(|end| end <= now)
    }

    fn check(&self, now: SystemTime) -> Result<()> {
        ensure!(!self.reason.trim().is_empty(), "has no reason");
        ensure!(!self.advisories.is_empty() && !self.components.is_empty(), "names no advisory or no component");
        let date = |text: &str| day(text).with_context(|| format!("{text:?} is no date: give one such as 2026-11-28"));
        let begins = date(&self.date)?;
        ensure!(begins <= now, "is dated {}, which is in the future", self.date);
        let lasts = date(&self.expires)?.duration_since(begins).unwrap_or_default();
        ensure!(!lasts.is_zero() && lasts <= LONGEST, "expires on {}: give a day within 400 days", self.expires);
        Ok(())
    }
}

/// The beginning of a day such as 2026-11-28.
fn day(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).ok()
}

/// Reads the judgements in a directory's `judged.toml`. An error names the first wrong judgement.
pub fn read(directory: &Path, now: SystemTime) -> Result<Vec<Judgement>> {
    let path = directory.join("judged.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let tables: BTreeMap<String, Vec<Judgement>> =
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let judgements: Vec<Judgement> = tables.into_values().flatten().collect();
    for judgement in &judgements {
        let named = || format!("{}: the judgement of {}", path.display(), judgement.advisories.join(", "));
        judgement.check(now).with_context(named)?;
    }
    Ok(judgements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_needs_a_reason_and_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[[judged]]\nadvisories = [\"GO-1\"]\ncomponents = [\"a\"]\nreason = \"r\"\ndate = \"2026-01-01\"\nexpires = \"2026-02-01\"\n";
        let read_with = |from: &str, to: &str| {
            std::fs::write(directory.path().join("judged.toml"), text.replace(from, to)).unwrap();
            read(directory.path(), day("2026-01-01").unwrap()).map_err(|error| format!("{error:#}"))
        };
        let judgement = read_with("", "").unwrap().remove(0);
        let row = |component: &str| Row { component: component.to_owned(), id: "GO-1".to_owned(), ..Row::default() };
        assert!(judgement.is_of(&row("a")) && !judgement.is_of(&row("b")));
        let at = |text: &str| day(text).unwrap();
        assert!(!judgement.has_expired(at("2026-01-31")) && judgement.has_expired(at("2026-02-01")));
        for (from, to, expected) in [
            ("\"r\"", "\" \"", "has no reason"),
            ("2026-02-01", "2026-02-30", "is no date"),
            ("2026-02-01", "2026-01-01", "give a day within 400 days"),
            ("2026-02-01", "2028-01-01", "give a day within 400 days"),
            ("2026-01-01", "2026-01-02", "is in the future"),
            ("reason", "because", "unknown field"),
            ("[\"GO-1\"]", "[]", "names no advisory"),
        ] {
            let error = read_with(from, to).unwrap_err();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
