//! The property collector: exact properties of objects, page by page, and waiting for their changes. Whole objects and whole
//! inventories are never asked for.

mod look;
mod object;
#[cfg(test)]
mod tests;
mod watch;

pub use object::Object;
pub(crate) use watch::{Watch, becomes};
