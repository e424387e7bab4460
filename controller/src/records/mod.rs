//! What `fleet` keeps, as fields of objects, there and back. `fleet`'s types are the truth: each is taken apart field by field, so
//! that one that comes later does not compile before it has its place here. Nothing is decided, asked or written.

mod deployment;
mod entry;
#[cfg(test)]
pub(crate) mod fixture;
mod text;
mod worker;

pub use self::deployment::{deployment_of, deployment_record};
pub use self::entry::{add, entry_of, journal_entry, plan_of};
pub use self::text::{Mismatch, digest, digits_of};
pub use self::worker::{as_on_form, noted, template, worker_of};
