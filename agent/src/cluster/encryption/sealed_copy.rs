//! The copy of the keys that a node seals to the operator's public key. Each node keeps a separate copy by its own
//! property, so that nodes with different properties do not overwrite each other's copy.

use contract::recovery::{Keys, PublicKey, Sealed};

use super::store::Store;

/// Updates the copy of `node`: a copy of these keys, or none without a public key. Returns whether it changed.
pub fn ensure(store: &Store<'_>, node: &str, to: Option<&PublicKey>, keys: &Keys) -> anyhow::Result<bool> {
    let present = store.sealed(node)?;
    let Some(to) = to else {
        if present.is_some() {
            store.keep_sealed(node, None)?;
        }
        return Ok(present.is_some());
    };
    if present.is_some_and(|present| fits(&present, to, keys)) {
        return Ok(false);
    }
    store.keep_sealed(node, Some(&Sealed::new(to, keys)?))?;
    Ok(true)
}

fn fits(present: &Sealed, to: &PublicKey, keys: &Keys) -> bool {
    present.to == to.fingerprint() && present.ids.iter().map(String::as_str).eq(keys.ids())
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::recovery::{Key, PrivateKey};
    use contract::secret::Secret;

    #[test]
    fn copy_fits_while_keys_and_public_key_stay() {
        let key = |id: &str| Key { id: id.to_owned(), secret: Secret::new(id.to_owned()) };
        let (one, two) = (Keys { keys: vec![key("a")] }, Keys { keys: vec![key("a"), key("b")] });
        let public = || PrivateKey::draw().unwrap().public().unwrap();
        let (own, other) = (public(), public());
        let sealed = Sealed::new(&own, &one).unwrap();
        assert!(fits(&sealed, &own, &one));
        assert!(!fits(&sealed, &own, &two) && !fits(&sealed, &other, &one));
    }
}
