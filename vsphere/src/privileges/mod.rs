//! The privileges of the account: their table, a check by name, and the list for a role.

mod check;
mod table;

pub use check::{Missing, Need};
pub use table::{On, PRIVILEGES, Privilege, WISHED, role_file};
