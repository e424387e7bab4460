//! The keys with which API servers encrypt Secrets. One record in etcd lists them and names the one for new Secrets.
//! The CA of etcd wraps each key: only a holder of that CA has the keys.
//!
//! A key rotation has four steps, each one change of that record: offered, used, all Secrets rewritten, alone. See
//! docs/concepts/secrets.md, "Keys of Secrets". Knows nothing of images and swaps.

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
