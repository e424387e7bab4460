//! Conversion of `fleet`'s records to fields of objects and back. `fleet`'s types are taken apart field by field: a new field
//! does not compile until it is added here. Decides and requests nothing.

mod entry;
#[cfg(test)]
pub(crate) mod fixture;
mod text;
mod worker;

pub use self::entry::{add, entry_of, journal_entry, plan_of};
pub use self::text::{Mismatch, digest, digits_of};
pub use self::worker::{as_on_form, noted, template, worker_of};
