//! The property collector: reads named properties of objects page by page, and waits for their changes. The client
//! never reads whole objects or inventories.

mod look;
mod object;
#[cfg(test)]
mod tests;
mod watch;

pub use object::Object;
pub(crate) use watch::{Watch, becomes};
