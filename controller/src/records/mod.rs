//! The parts of `fleet`'s records that objects store in another form. A worker's template is in the spec of its Machine, and an
//! upgrade's plan in the spec of its Operation. Decides and requests nothing.

mod entry;
#[cfg(test)]
pub(crate) mod fixture;
mod text;
mod worker;

pub use self::entry::{add, entry_of, journal_entry, plan_of};
pub use self::text::{Mismatch, digest, digits_of};
pub use self::worker::{as_on_form, noted, template, worker_of};
