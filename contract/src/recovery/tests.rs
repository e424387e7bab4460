use super::*;

/// As `openssl genpkey -algorithm x25519` and `openssl pkey -pubout` have written them.
const PRIVATE: &str = include_str!("fixtures/key.pem");
const PUBLIC: &str = include_str!("fixtures/key.pub");

fn keys(ids: &[&str]) -> Keys {
    let key = |id: &&str| Key { id: (*id).to_owned(), secret: Secret::new(format!("secret of {id}")) };
    Keys { keys: ids.iter().map(key).collect() }
}

#[test]
fn keys_of_openssl_are_read_and_written_unchanged() {
    let private = PrivateKey::of_pem(PRIVATE).unwrap();
    let public: PublicKey = PUBLIC.parse().unwrap();
    assert_eq!(private.public().unwrap(), public);
    assert_eq!(private.pem().expose(), PRIVATE);
    // In the forms that a property may have.
    let inside = public.to_string();
    assert_eq!(PUBLIC, format!("-----BEGIN PUBLIC KEY-----\n{inside}\n-----END PUBLIC KEY-----\n"));
    for text in [inside.clone(), PUBLIC.replace('\n', "\\n"), format!(" {inside}\n")] {
        assert_eq!(text.parse::<PublicKey>(), Ok(public.clone()), "{text}");
    }
    let other = PrivateKey::draw().unwrap();
    assert_ne!(other.public().unwrap(), public);
    assert_eq!(PrivateKey::of_pem(other.pem().expose()).unwrap().public(), other.public());
}

#[test]
fn private_keys_and_other_texts_are_refused() {
    let inside = PRIVATE.lines().nth(1).unwrap();
    for text in [PRIVATE, inside] {
        assert_eq!(text.parse::<PublicKey>(), Err(Error::Private));
    }
    let ed25519 = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    let zero = "MCowBQYDK2VuAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let short = PUBLIC.lines().nth(1).unwrap().trim_end_matches('=').to_owned();
    for text in ["", "age1abc", ed25519, zero, &short[..short.len() - 4]] {
        assert_eq!(text.parse::<PublicKey>(), Err(Error::NotPublic), "{text:?}");
    }
    assert!(PrivateKey::of_pem(PUBLIC).is_err() && PrivateKey::of_pem("").is_err());
}

#[test]
fn only_the_private_key_opens_sealed_keys() {
    let private = PrivateKey::of_pem(PRIVATE).unwrap();
    let public = private.public().unwrap();
    let sealed = Sealed::new(&public, &keys(&["a", "b"])).unwrap();
    assert_eq!((sealed.to.clone(), sealed.ids.clone()), (public.fingerprint(), vec!["a".into(), "b".into()]));
    let line = sealed.line();
    assert!(!line.contains("secret of") && !line.contains('\n'));
    assert_eq!(Sealed::of_line(line.as_bytes()).unwrap().open(&private).unwrap(), keys(&["a", "b"]));
    assert_eq!(sealed.open(&PrivateKey::draw().unwrap()), Err(Error::OtherKey));
    let mut damaged = sealed.clone();
    damaged.ciphertext.replace_range(..4, "AAAA");
    assert_eq!(damaged.open(&private), Err(Error::Damaged));
}
