//! CA certificates as a form of one line can carry them.

use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::value::Problem;
use crate::codes;
use crate::encoding::{base64, unescape_lines};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
const ACTION: &str =
    "Give the CA certificates in PEM with line ends written as \\n, or the output of \"base64 -w0 ca.pem\"";

/// The certificates in a text, each as separate PEM with lines of 64 characters
/// (RFC 7468). The text is PEM, or base64 of PEM or of one certificate in DER.
/// Line ends of PEM may be written as `\n`, or turned into spaces by XML.
///
/// # Errors
/// The problems of all certificates. Whether one has expired is not judged here:
/// see [`validity`].
pub fn authorities(text: &str) -> Result<Vec<String>, Vec<Problem>> {
    let (mut found, mut problems) = (Vec::<String>::new(), Vec::new());
    for (index, der) in ders(text)?.into_iter().enumerate() {
        match der.and_then(|der| authority(&der)) {
            Ok(pem) if !found.contains(&pem) => found.push(pem),
            Ok(_) => {}
            Err((code, why)) => problems.push(Problem::new(code, format!("certificate {} {why}", index + 1), ACTION)),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

type Fault = (&'static codes::Code, String);

fn ders(text: &str) -> Result<Vec<Result<Vec<u8>, Fault>>, Problem> {
    let text = if text.contains("-----BEGIN") {
        text.to_owned()
    } else {
        let bytes = base64(text).ok_or_else(|| {
            Problem::new(&codes::CERTIFICATE_MALFORMED, "the value is neither PEM nor base64", ACTION)
        })?;
        match String::from_utf8(bytes) {
            Ok(text) if text.contains("-----BEGIN") => text,
            Ok(_) => {
                return Err(Problem::new(&codes::CERTIFICATE_MALFORMED, "the base64 text holds no PEM", ACTION));
            }
            Err(error) => return Ok(vec![Ok(error.into_bytes())]),
        }
    };
    if text.contains("PRIVATE KEY-----") {
        return Err(Problem::new(
            &codes::CERTIFICATE_PRIVATE,
            "a private key was given; it should no longer be used",
            ACTION,
        ));
    }
    let text = unescape_lines(&text);
    let mut parts = text.split(BEGIN);
    // Text before the first certificate is commentary, unless it is another kind of PEM.
    let before = parts.next().unwrap_or_default();
    let mut ders: Vec<_> = parts
        .map(|part| {
            let (body, _) = part
                .split_once(END)
                .ok_or_else(|| (&codes::CERTIFICATE_MALFORMED, "is cut off: it has no END line".to_owned()))?;
            base64(body).ok_or_else(|| (&codes::CERTIFICATE_MALFORMED, "has text that is not base64".to_owned()))
        })
        .collect();
    if ders.is_empty() || before.contains("-----BEGIN") {
        ders.push(Err((&codes::CERTIFICATE_MALFORMED, "is PEM of something else than a certificate".to_owned())));
    }
    Ok(ders)
}

fn authority(der: &[u8]) -> Result<String, Fault> {
    let certificate =
        parsed(der).ok_or_else(|| (&codes::CERTIFICATE_MALFORMED, "is not an X.509 certificate".to_owned()))?;
    let constraints = certificate
        .basic_constraints()
        .map_err(|_| (&codes::CERTIFICATE_MALFORMED, "has a damaged basicConstraints extension".to_owned()))?;
    if !constraints.is_some_and(|constraints| constraints.value.ca) {
        let subject = name(&certificate);
        return Err((&codes::CERTIFICATE_NOT_CA, format!("({subject}) is not a certificate authority's")));
    }
    Ok(pem(der))
}

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().and_then(|(rest, certificate)| rest.is_empty().then_some(certificate))
}

/// The subject as a message can show it: foreign text, kept to one short line.
fn name(certificate: &X509Certificate<'_>) -> String {
    super::quoted(&certificate.subject().to_string())
}

fn pem(der: &[u8]) -> String {
    let body = BASE64_STANDARD.encode(der);
    let mut pem = format!("{BEGIN}\n");
    for start in (0..body.len()).step_by(64) {
        pem.push_str(&body[start..body.len().min(start + 64)]);
        pem.push('\n');
    }
    pem + END + "\n"
}

/// Whether certificates from [`authorities`] are valid at `now`: a problem for
/// each that is not. The VM's clock may be wrong, so these are warnings.
pub fn validity(pems: &[String], now: SystemTime) -> Vec<Problem> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut problems = Vec::new();
    for pem in pems {
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let Some(der) = base64(&body) else { continue };
        let Some(certificate) = parsed(&der) else { continue };
        let (validity, subject) = (certificate.validity(), name(&certificate));
        if validity.not_after.timestamp() < now {
            problems.push(Problem::new(
                &codes::CERTIFICATE_EXPIRED,
                format!("the certificate of {subject} was valid until {}", validity.not_after),
                "Renew it, or set the clock of the ESXi host right",
            ));
        } else if validity.not_before.timestamp() > now {
            problems.push(Problem::new(
                &codes::CERTIFICATE_EARLY,
                format!("the certificate of {subject} is valid from {}", validity.not_before),
                "Wait until then, or set the clock of the ESXi host right",
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(ca: IsCa) -> String {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "Site \"Root\" CA");
        parameters.is_ca = ca;
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(2030, 1, 1);
        let key = KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().pem().replace("\r\n", "\n")
    }

    fn ca() -> String {
        certificate(IsCa::Ca(BasicConstraints::Unconstrained))
    }

    fn code(text: &str) -> &'static str {
        authorities(text).unwrap_err()[0].code.code
    }

    #[test]
    fn pem_survives_every_way_into_the_form() {
        let (one, two) = (ca(), ca());
        let bundle = format!("Site CA\n{one}\n{two}");
        let expected = [one.clone(), two];
        for text in [
            bundle.clone(),
            bundle.replace('\n', "\\n"),
            bundle.replace('\n', "\r\n"),
            bundle.replace('\n', "\\r\\n"),
            bundle.replace('\n', " "),
            BASE64_STANDARD.encode(&bundle),
        ] {
            assert_eq!(authorities(&text).unwrap(), expected);
        }
        let body: String = one.lines().filter(|line| !line.starts_with('-')).collect();
        assert_eq!(authorities(&body).unwrap(), std::slice::from_ref(&one));
        assert_eq!(authorities(&format!("{one}{one}")).unwrap(), [one]);
    }

    #[test]
    fn each_bad_certificate_has_its_code() {
        let good = ca();
        assert_eq!(code(&certificate(IsCa::NoCa)), "certificate.not-ca");
        assert_eq!(code(&certificate(IsCa::ExplicitNoCa)), "certificate.not-ca");
        assert_eq!(code(&KeyPair::generate().unwrap().serialize_pem()), "certificate.private-key");
        for text in [
            "hello!",
            "aGVsbG8=",
            &good[..200],
            &good.replace(&good[60..64], "!!!!"),
            &format!("{BEGIN}\naGVsbG8=\n{END}"),
            "-----BEGIN PUBLIC KEY-----\naGVsbG8=\n-----END PUBLIC KEY-----",
            BEGIN,
        ] {
            assert_eq!(code(text), "certificate.malformed", "{text}");
        }
        assert_eq!(authorities(&format!("{BEGIN}{END}{BEGIN}x{END}{good}")).unwrap_err().len(), 2);
    }

    #[test]
    fn validity_is_a_matter_of_the_clock() {
        let pems = authorities(&ca()).unwrap();
        let at = |year: u64| SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 365 * 86400);
        assert_eq!(validity(&pems, at(2026)), []);
        assert_eq!(validity(&pems, at(2032))[0].code.code, "certificate.expired");
        assert_eq!(validity(&pems, at(2018))[0].code.code, "certificate.not-yet-valid");
    }
}
