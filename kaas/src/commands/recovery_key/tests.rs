use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use contract::recovery::Sealed;
use contract::secret::Secret;

use super::*;

/// A snapshot that etcd 3.6.16 sent. The nodes cp1, cp2 and cp3 have copies of the keys `a` and `b`. cp1's copy replaced one
/// with `a` alone. That of cp3 is damaged, that of cp4 was deleted, and that of cp5 is sealed to another key. A ConfigMap holds
/// bytes that look like a pair of such a key, and copies with keys that a user made up. 150 other ConfigMaps give the database
/// branch pages.
const SNAPSHOT: &[u8] = include_bytes!("fixtures/snapshot.db");

/// The private key that opens the copies.
const PRIVATE: &str = include_str!("../../../../contract/src/recovery/fixtures/key.pem");

fn key(id: &str, secret: &str) -> Key {
    Key { id: id.to_owned(), secret: Secret::new(secret.to_owned()) }
}

/// The keys in the copies.
fn sealed_keys() -> Keys {
    Keys { keys: vec![key("a", "secret of a"), key("b", "secret of b")] }
}

fn copy(node: &str, keys: Vec<Key>) -> SealedCopy {
    let public = PrivateKey::of_pem(PRIVATE).unwrap().public().unwrap();
    SealedCopy { node: node.to_owned(), sealed: Some(Sealed::new(&public, &Keys { keys }).unwrap()) }
}

fn damaged(copy: SealedCopy) -> SealedCopy {
    let text = serde_json::to_string(&copy.sealed).unwrap();
    let at = text.find("ciphertext\":\"").unwrap() + 13;
    let other = if &text[at..=at] == "A" { "B" } else { "A" };
    let text = [&text[..at], other, &text[at + 1..]].concat();
    SealedCopy { sealed: serde_json::from_str(&text).unwrap(), ..copy }
}

fn open(copies: &[SealedCopy]) -> anyhow::Result<(Keys, Vec<String>)> {
    opened(copies, &PrivateKey::of_pem(PRIVATE).unwrap())
}

fn look(snapshot: &[u8]) -> std::io::Result<SealedCopies> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(snapshot).unwrap();
    snapshot::look(&file)
}

#[test]
fn only_the_matching_private_key_opens_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let new = || run(&RecoveryKey::New { to_file: path("other.pem"), output: Output::Table });
    new().unwrap();
    assert_eq!(fs::metadata(path("other.pem")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(new().is_err(), "a private key was written over");
    fs::write(path("own.pem"), PRIVATE).unwrap();
    fs::write(path("snapshot.db"), SNAPSHOT).unwrap();
    let open = |key: &str, snapshot: &str, output: &str| {
        run(&RecoveryKey::Open {
            key: path(key),
            to_file: path(output),
            snapshot: path(snapshot),
            output: Output::Table,
        })
    };
    open("own.pem", "snapshot.db", "keys").unwrap();
    let keys: Keys = serde_json::from_str(&fs::read_to_string(path("keys")).unwrap()).unwrap();
    assert_eq!(keys, sealed_keys());
    let refused = open("other.pem", "snapshot.db", "none").unwrap_err().to_string();
    assert!(refused.starts_with("the snapshot's keys are sealed to "), "{refused}");
    fs::write(path("text.db"), "pages").unwrap();
    let refused = format!("{:#}", open("own.pem", "text.db", "none").unwrap_err());
    assert!(refused.ends_with("text.db: it is no snapshot of etcd"), "{refused}");
    let refused = super::opened(&[], &PrivateKey::of_pem(PRIVATE).unwrap()).unwrap_err().to_string();
    assert!(refused.starts_with("nothing is sealed in this snapshot"), "{refused}");
    assert!(!path("none").exists());
}

#[test]
fn only_node_copies_are_found_newest_first() {
    let kept = look(SNAPSHOT).unwrap();
    let nodes: Vec<&str> = kept.copies.iter().map(|copy| copy.node.as_str()).collect();
    assert_eq!((nodes, kept.damaged), (vec!["cp5", "cp4", "cp3", "cp2", "cp1", "cp1"], 0));
    let (keys, wrong) = open(&kept.copies).unwrap();
    assert_eq!(keys, sealed_keys());
    assert_eq!(wrong, ["a copy of node cp3 cannot be opened: what is sealed is damaged, or of a later version"]);
}

#[test]
fn one_readable_copy_is_enough() {
    let good = || copy("cp2", sealed_keys().keys);
    let bad = || damaged(copy("cp1", sealed_keys().keys));
    let unread = SealedCopy { node: "cp3".to_owned(), sealed: None };
    let (keys, wrong) = open(&[bad(), unread, good()]).unwrap();
    assert_eq!((keys, wrong.len()), (sealed_keys(), 2));
    let refused = open(&[bad()]).unwrap_err().to_string();
    assert!(refused.starts_with("no copy in this snapshot can be opened: a copy of node cp1 "), "{refused}");
}

#[test]
fn majority_of_copies_decides_with_a_warning() {
    let other = || copy("cp3", vec![key("a", "another one"), key("b", "secret of b")]);
    let (keys, wrong) = open(&[other(), copy("cp1", sealed_keys().keys), copy("cp2", sealed_keys().keys)]).unwrap();
    let mut found = keys.keys;
    found.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(found, sealed_keys().keys);
    assert_eq!(wrong, ["the copies disagree on the key a: that of cp1 and cp2 is taken, another one of cp3 is not"]);
}

#[test]
fn damaged_page_is_counted_and_hides_nothing_else() {
    let whole = look(SNAPSHOT).unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut found = 0;
    for page in 0..SNAPSHOT.len() / 4096 {
        file.write_all_at(SNAPSHOT, 0).unwrap();
        file.write_all_at(&[0xff; 4096], page as u64 * 4096).unwrap();
        let Ok(kept) = snapshot::look(&file) else { continue };
        assert!(kept.copies.iter().all(|copy| whole.copies.contains(copy)), "page {page}");
        assert!(kept.copies.len() == whole.copies.len() || kept.damaged > 0, "page {page}");
        found += kept.copies.len();
    }
    assert!(found > 0);
    // Snapshots that are cut off at different lengths.
    for length in (0..SNAPSHOT.len()).step_by(1000) {
        let _ = look(&SNAPSHOT[..length]);
    }
}
