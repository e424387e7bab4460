//! Workers come and go, whatever goes wrong.

mod crash;
mod decide;
mod fake;
mod records;
mod stories;
