use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;

/// openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256, and its public half.
const PRIVATE: &str = include_str!("fixtures/key.pem");
const PUBLIC: &str = include_str!("fixtures/key.pub");

fn read(text: &str) -> Result<PublicKey, Error> {
    text.parse()
}

#[test]
fn public_key_is_read_in_each_form() {
    let expected = PrivateKey::of_pem(PRIVATE).unwrap().public().unwrap();
    let inside: String = PUBLIC.lines().filter(|line| !line.starts_with('-')).collect();
    assert_eq!(expected.to_string(), inside);
    for text in [
        PUBLIC.to_owned(),
        PUBLIC.replace('\n', "\\n"),
        PUBLIC.replace('\n', "\r\n"),
        PUBLIC.replace('\n', " "),
        inside.clone(),
        BASE64_STANDARD.encode(PUBLIC),
    ] {
        assert_eq!(read(&text), Ok(expected), "{text}");
    }
    // openssl pkey -pubin -in key.pub -outform der | sha256sum
    assert_eq!(expected.fingerprint().to_string(), include_str!("fixtures/key.sha256").trim());
}

#[test]
fn property_takes_two_keys() {
    let [one, two] = [(); 2].map(|()| PrivateKey::draw().unwrap().public().unwrap());
    assert_eq!(public_keys(&written(&[one])), Ok(vec![one]));
    assert_eq!(public_keys(&written(&[one, two])), Ok(vec![one, two]));
    let spaced = format!("{one}, {}", PUBLIC.replace('\n', "\\n"));
    assert_eq!(public_keys(&spaced), Ok(vec![one, read(PUBLIC).unwrap()]));
    assert_eq!(public_keys(&written(&[one, two, one])), Err(Error::TooMany));
    assert_eq!(public_keys(&format!("{one},")), Err(Error::NotPublic));
    assert_eq!(public_keys(&format!("{one},{PRIVATE}")), Err(Error::Private));
}

#[test]
fn private_keys_and_other_texts_are_refused() {
    let inside: String = PRIVATE.lines().filter(|line| !line.starts_with('-')).collect();
    for text in [PRIVATE.to_owned(), inside, BASE64_STANDARD.encode(PRIVATE)] {
        assert_eq!(read(&text), Err(Error::Private));
    }
    // A point off the curve, and a key of Ed25519.
    let beside = {
        let mut der = BASE64_STANDARD.decode(read(PUBLIC).unwrap().to_string()).unwrap();
        *der.last_mut().unwrap() ^= 1;
        BASE64_STANDARD.encode(der)
    };
    let others = ["", "x", "ssh-ed25519 AAAA", "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=", &beside];
    for text in others {
        assert_eq!(read(text), Err(Error::NotPublic), "{text}");
    }
    let nested = BASE64_STANDARD.encode(BASE64_STANDARD.encode(PUBLIC));
    assert_eq!(read(&nested), Err(Error::NotPublic));
}

#[test]
fn a_drawn_key_is_read_again() {
    let key = PrivateKey::draw().unwrap();
    let again = PrivateKey::of_pem(key.pem().expose()).unwrap();
    assert_eq!(key.public(), again.public());
    assert!(matches!(PrivateKey::of_pem(PUBLIC), Err(Error::NotPrivate)));
    assert!(matches!(PrivateKey::of_pem(""), Err(Error::NotPrivate)));
}

#[test]
fn proof_binds_session_cluster_and_key() {
    let (key, session) = (PrivateKey::draw().unwrap(), Session::fixed([7; 32]));
    let (public, cluster) = (key.public().unwrap(), Fingerprint::of(b"authority"));
    let request = session.request(&key, &cluster).unwrap();
    assert!(session.is_proved(&request, &public, &cluster));
    assert!(!Session::fixed([8; 32]).is_proved(&request, &public, &cluster), "replayed");
    assert!(!session.is_proved(&request, &public, &Fingerprint::of(b"another cluster's")));
    let other = PrivateKey::draw().unwrap().public().unwrap();
    assert!(!session.is_proved(&request, &other, &cluster));
    let renamed = Request { key: other.fingerprint(), ..request.clone() };
    assert!(!session.is_proved(&renamed, &other, &cluster) && !session.is_proved(&renamed, &public, &cluster));
    for proof in ["", "AAAA", "*", &"A".repeat(4096)] {
        assert!(!session.is_proved(&Request { proof: proof.to_owned(), ..request.clone() }, &public, &cluster));
    }
}

#[test]
fn users_fit_a_common_name() {
    let users: Vec<String> = (0..2).map(|_| user(&PrivateKey::draw().unwrap().public().unwrap())).collect();
    assert!(users.iter().all(|user| user.len() <= 64 && user.starts_with("system:")) && users[0] != users[1]);
}

#[test]
fn only_written_fingerprints_are_read() {
    let (authority, endpoint) = (Fingerprint::of(b"a"), Fingerprint::of(b"e"));
    let both = Fingerprints { ca: authority, endpoint };
    assert_eq!(Fingerprints::read(both.to_string().as_bytes()), Some(both));
    assert_eq!(serde_json::to_string(&both).unwrap(), both.to_string());
    // A later version adds a field.
    let more = both.to_string().replace('{', r#"{"later":1,"#);
    assert_eq!(Fingerprints::read(more.as_bytes()), Some(both));
    let text = authority.to_string();
    assert_eq!(text.parse(), Ok(authority));
    for wrong in ["", &text[7..], &text[..70], &text.replace("sha256", "sha1"), &text.replacen(':', ":é", 1)] {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
    assert_eq!(Fingerprints::read(format!("{both}{}", " ".repeat(2000)).as_bytes()), None);
}

#[test]
fn of_a_console_the_last_whole_line_counts() {
    let of = |text: &[u8]| Fingerprints { ca: Fingerprint::of(text), endpoint: Fingerprint::of(b"e") };
    let (old, new) = (of(b"old"), of(b"new"));
    let console =
        format!("[ 1.0] x\r\n{}\r\nkaas: ready\r\n[2.0] {}\r\nkaas: fingerprints {{\r\n", old.line(), new.line());
    assert_eq!(Fingerprints::last_said(&console), Some(new));
    assert_eq!(Fingerprints::last_said("kaas: ready\r\n"), None);
}
