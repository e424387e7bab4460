//! What an account has to be permitted: the one table of it, a check by name, and a role's list of privileges.

mod check;
mod table;

pub use check::{Missing, Need};
pub use table::{On, PRIVILEGES, Privilege, WISHED, role_file};
