//! The keys of the record in clear. This cluster's CA unwraps them. If the store is a restored one of another cluster,
//! they are keys that the operator has opened.

use std::path::Path;
use std::time::SystemTime;

use contract::recovery::Keys;

use super::key_set::{KeySet, WrappedKey};
use super::store::{Store, StoredKeySet};
use super::wrap::{Wrapping, draw};
use crate::cluster::kubernetes::PKI;
use crate::cluster::pki::CertificateAuthorities;
use crate::cluster::records::Records;
use crate::cluster::recovered_keys::RecoveredKeys;
use crate::host::files;

/// The record and its keys in clear.
pub struct UnwrappedKeySet {
    pub seen: StoredKeySet,
    pub keys: Keys,
}

pub enum KeyLookup {
    /// All keys could be unwrapped.
    Readable(Box<UnwrappedKeySet>),
    /// Another cluster's CA has wrapped them, and a restore did not receive all of them: their names.
    Unreadable(Vec<String>),
}

fn wrapping(root: &Path) -> anyhow::Result<Wrapping> {
    Wrapping::of(&CertificateAuthorities::read(&files::below(root, PKI))?.etcd)
}

/// Draws a key and wraps it by the CA of the node below `root`.
///
/// # Errors
/// The CAs cannot be read, or the random source fails.
pub fn new_key(root: &Path) -> anyhow::Result<(WrappedKey, String)> {
    let (key, wrapping) = (draw()?, wrapping(root)?);
    Ok((WrappedKey { wrapped: wrapping.wrap(&key)?, id: key.id }, wrapping.ca().to_owned()))
}

/// The record with its keys. Keys that a restore received are moved into the record, and then forgotten.
///
/// # Errors
/// There is no quorum or no record, the CAs cannot be read, or a key is damaged.
pub fn find(root: &Path, store: &Store<'_>, now: SystemTime) -> anyhow::Result<KeyLookup> {
    let (wrapping, records) = (wrapping(root)?, Records::new(root));
    loop {
        let seen = store.read()?;
        if seen.set.ca == wrapping.ca() {
            let keys = unwrapped(&seen.set, &wrapping)?;
            if records.entry::<RecoveredKeys>()?.is_some() {
                records.forget::<RecoveredKeys>()?;
            }
            return Ok(KeyLookup::Readable(Box::new(UnwrappedKeySet { seen, keys })));
        }
        let given = records.entry::<RecoveredKeys>()?.map(|given| given.0).unwrap_or_default();
        let Some(wrapped) = rewrapped(&seen.set, &given, &wrapping)? else {
            return Ok(KeyLookup::Unreadable(seen.set.keys.into_iter().map(|key| key.id).collect()));
        };
        // Another node may have done the same, or more. So the record is read again.
        if store.change(&seen, &seen.set.rewrapped(wrapping.ca(), wrapped, now))? {
            log::info!("the recovered encryption keys are in the store, wrapped by this cluster's CA");
        }
    }
}

fn unwrapped(set: &KeySet, wrapping: &Wrapping) -> anyhow::Result<Keys> {
    let keys = set.keys.iter().map(|key| wrapping.unwrap(&key.id, &key.wrapped));
    Ok(Keys { keys: keys.collect::<anyhow::Result<_>>()? })
}

/// All keys of the set, wrapped by this CA. `None` if one of them was not given.
fn rewrapped(set: &KeySet, given: &Keys, wrapping: &Wrapping) -> anyhow::Result<Option<Vec<WrappedKey>>> {
    let mut wrapped = Vec::new();
    for key in &set.keys {
        let Some(given) = given.keys.iter().find(|given| given.id == key.id) else { return Ok(None) };
        wrapped.push(WrappedKey { id: key.id.clone(), wrapped: wrapping.wrap(given)? });
    }
    Ok(Some(wrapped))
}
