//! Which published advisories concern what an image is made of, and whether each was judged. Each source of advisories
//! is a module; none of them knows the judgements.

mod crates;
pub mod debian;
pub mod go;
pub mod judged;

use std::collections::BTreeSet;
use std::time::SystemTime;

use serde::Serialize;

pub use crates::check as check_crates;
use judged::Judgement;

/// A published weakness.
#[derive(Clone, Debug, Serialize)]
pub struct Advisory {
    /// Its ID in the database that it is from.
    pub id: String,
    /// Its IDs in other databases.
    pub aliases: Vec<String>,
    /// What it is, in one line.
    pub summary: String,
}

impl Advisory {
    fn is_called(&self, id: &str) -> bool {
        self.id == id || self.aliases.iter().any(|alias| alias == id)
    }
}

/// Whether an advisory is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It concerns the image, and no judgement accepts that.
    Unjudged,
    /// The judgement that accepted it has expired.
    Expired,
    /// The module is affected; whether the program has the affected code shows when the component is built.
    Undecided,
    /// A judgement accepts it.
    Judged,
    /// The module is affected, but the linker left the affected code out of the program.
    NotLinked,
}

/// An advisory that concerns a component.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The component; `debian/` and the source package for one of Debian.
    pub component: String,
    /// The affected module or package with its version.
    pub part: String,
    /// The advisory.
    #[serde(flatten)]
    pub advisory: Advisory,
    /// The first version with a fix, if there is one.
    pub fixed: Option<String>,
    /// Whether it is open.
    pub status: Status,
    /// The reason and the end of the judgement.
    pub reason: Option<String>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// What was checked, against which state of which source.
    pub checked: Vec<String>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
    /// The advisories: open ones first.
    pub rows: Vec<Row>,
    /// Judgements without an advisory: `ADVISORY of COMPONENT`.
    pub stale: Vec<String>,
}

impl Report {
    /// Compares the rows with the judgements. `components` were checked, so a judgement of one of them without a row is
    /// stale.
    pub fn judge(&mut self, judgements: &[Judgement], components: &BTreeSet<String>, now: SystemTime) {
        let mut used = BTreeSet::new();
        for row in self.rows.iter_mut().filter(|row| row.status != Status::NotLinked) {
            let mut found: Option<&Judgement> = None;
            for judgement in judgements.iter().filter(|judgement| judgement.names(&row.component)) {
                for id in judgement.advisories.iter().filter(|id| row.advisory.is_called(id)) {
                    used.insert((id.clone(), row.component.clone()));
                    // Of several the one that lasts longest counts: dates compare as texts.
                    found = Some(found.filter(|own| own.expires >= judgement.expires).unwrap_or(judgement));
                }
            }
            if let Some(judgement) = found {
                row.status = if judgement.has_expired(now) { Status::Expired } else { Status::Judged };
                row.reason = Some(format!("until {}: {}", judgement.expires, judgement.reason));
            }
        }
        for judgement in judgements {
            for id in &judgement.advisories {
                let is_used = |component: &str| match component {
                    "*" => used.iter().any(|(used, _)| used == id),
                    _ => !components.contains(component) || used.contains(&(id.clone(), component.to_owned())),
                };
                let unused = judgement.components.iter().filter(|component| !is_used(component));
                self.stale.extend(unused.map(|component| format!("{id} of {component}")));
            }
        }
        self.rows.sort_by(|a, b| {
            (a.status, &a.component, &a.advisory.id, &a.part).cmp(&(b.status, &b.component, &b.advisory.id, &b.part))
        });
    }

    /// How many rows have this status.
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// Whether the command fails: on an unjudged advisory, and unless `pinned` on an expired or undecided one.
    pub fn fails(&self, pinned: bool) -> bool {
        self.count(Status::Unjudged) > 0 || !pinned && self.count(Status::Expired) + self.count(Status::Undecided) > 0
    }
}

#[cfg(test)]
mod tests;
