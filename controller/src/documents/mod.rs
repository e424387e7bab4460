//! What is made from the kinds: their definitions as an API server takes them with all else that it has to know before a controller
//! works there, and the reference for people. Knows what the types say and nothing else, and writes nothing by itself.

mod definitions;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod kept;
mod policies;
mod reference;
mod rights;
mod yaml;

pub use self::definitions::{Definition, definition, definitions, list};
pub use self::reference::{reference, renew};
pub use self::rights::{ACCOUNT, RIGHTS, Right};
