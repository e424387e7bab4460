//! The keys that API servers encrypt Secrets with: one record in etcd says which there are and which one is written with,
//! each key wrapped by etcd's authority, so that whoever holds the authorities has the keys and nobody else.
//!
//! A new key is taken up in steps, each one change of that record: offered, used, all Secrets rewritten, alone. See
//! docs/security.md, "Keys of Secrets". Knows nothing of images and swaps: when a cluster begins to encrypt is
//! [`crate::maintenance`]'s to say.

pub mod command;
pub mod key_rotation;
pub mod key_set;
pub mod loaded;
pub mod rewrite;
pub mod sealed_copy;
pub mod store;
pub mod unwrap_keys;
mod wrap;

#[cfg(test)]
mod tests;
