//! Which published advisories concern what an image is made of, and whether each was judged. Each source of advisories
//! is a module; none of them knows the judgements.

mod crates;
pub(crate) mod debian;
pub(crate) mod go;
pub(crate) mod judged;

use std::time::SystemTime;

pub(crate) use crates::check as check_crates;
use judged::Judgement;

/// Whether an advisory is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It concerns the image, and no judgement accepts that.
    #[default]
    Unjudged,
    /// The judgement that accepted it has expired.
    Expired,
    /// A judgement accepts it.
    Judged,
}

/// An advisory that concerns a component. Rows are ordered by these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Whether it is open.
    pub status: Status,
    /// The component; `debian/` and the source package for one of Debian.
    pub component: String,
    /// The advisory's ID in the database that it is from.
    pub id: String,
    /// The affected module or package with its version.
    pub part: String,
    /// The advisory's IDs in other databases.
    pub aliases: Vec<String>,
    /// The first version with a fix, if one exists.
    pub fixed: Option<String>,
    /// The advisory in one line, or the end and the reason of the judgement.
    pub text: String,
}

/// The result of an audit.
#[derive(Debug, Default)]
pub struct Report {
    /// Parts that were checked, each with the state of its source.
    pub checked: Vec<String>,
    /// Parts that could not be checked, each with the reason.
    pub unchecked: Vec<String>,
    /// The advisories: open ones first.
    pub rows: Vec<Row>,
}

impl Report {
    pub(crate) fn judge(&mut self, judgements: &[Judgement], now: SystemTime) {
        for row in &mut self.rows {
            let accepting = judgements.iter().filter(|judgement| judgement.is_of(row));
            // Of several the one that lasts longest counts: dates compare as texts.
            if let Some(judgement) = accepting.max_by_key(|judgement| &judgement.expires) {
                row.status = if judgement.has_expired(now) { Status::Expired } else { Status::Judged };
                row.text = format!("until {}: {}", judgement.expires, judgement.reason);
            }
        }
        self.rows.sort();
    }

    /// How many rows have this status.
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// Whether the command fails: on an unjudged advisory, and unless `pinned` on an expired judgement.
    pub fn fails(&self, pinned: bool) -> bool {
        self.count(Status::Unjudged) > 0 || !pinned && self.count(Status::Expired) > 0
    }
}

#[cfg(test)]
mod tests;
