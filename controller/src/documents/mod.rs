//! Documents made from the kinds: the definitions and all other objects that an API server needs before a controller can work
//! there, and the reference. They depend on the types only. Writes no files.

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
pub use self::rights::{ACCOUNT, RBAC, RIGHTS, Right, TENANT_EDIT, TENANT_VIEW};
pub use self::yaml::document as yaml;
