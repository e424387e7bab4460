//! Reads requests for certificates (PKCS #10, RFC 2986). Kubernetes parses the same text with its own parser and signs the
//! result. So a request is accepted only if this module would write its values as the same bytes. No other parser of PEM and
//! ASN.1 can find other values in it then.

use std::net::Ipv4Addr;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use crate::cluster::pki;

/// A kubelet's request has less than a thousand bytes. Each control-plane node reads all open requests into memory.
pub(super) const LONGEST: usize = 4 << 10;

/// The label of a request's block of PEM (RFC 7468, section 7).
const LABEL: &str = "CERTIFICATE REQUEST";

/// Tags of ASN.1 (X.690, section 8), with the bit of constructed ones.
mod tag {
    pub const OCTETS: u8 = 0x04;
    pub const UTF8: u8 = 0x0c;
    pub const PRINTABLE: u8 = 0x13;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
    pub const DNS_NAME: u8 = 0x82;
    pub const ADDRESS: u8 = 0x87;
    pub const ATTRIBUTES: u8 = 0xa0;
}

/// The version of a request: 0.
const VERSION: &[u8] = &[0x02, 0x01, 0x00];
/// `id-at-organizationName`, 2.5.4.10.
const ORGANIZATION: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x0a];
/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
/// `pkcs-9-at-extensionRequest`, 1.2.840.113549.1.9.14.
const EXTENSIONS: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// `id-ce-subjectAltName`, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x11];

/// The content of a request, except for its key and signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CsrContent {
    pub organization: String,
    pub common_name: String,
    /// DNS names, in order.
    pub names: Vec<String>,
    pub addresses: Vec<Ipv4Addr>,
    /// The fingerprint of its public key ([`pki::digits`]).
    pub key: String,
}

impl CsrContent {
    /// Reads the field `request` of a `CertificateSigningRequest`: PEM in base64.
    ///
    /// # Errors
    /// It is not one request as the programs of nodes write them, or asks for anything besides.
    pub fn read(encoded: &str) -> anyhow::Result<Self> {
        ensure!(encoded.len() <= LONGEST, "it is longer than any kubelet's");
        let text = BASE64_STANDARD.decode(encoded).context("it is not in base64")?;
        let text = String::from_utf8(text).context("it is no text")?;
        let der = block(&text).context("it is not one block of PEM and nothing else")?;
        let (_, request) = X509CertificationRequest::from_der(&der).context("it cannot be understood")?;
        let info = &request.certification_request_info;
        let organization = one(info.subject.iter_organization().map(|name| name.as_str()))?;
        let common_name = one(info.subject.iter_common_name().map(|name| name.as_str()))?;
        let mut names = Names::default();
        for attribute in info.attributes() {
            let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
                bail!("it has an attribute besides the names");
            };
            for extension in &requested.extensions {
                let ParsedExtension::SubjectAlternativeName(listed) = extension.parsed_extension() else {
                    bail!("it asks for an extension besides names");
                };
                listed.general_names.iter().try_for_each(|name| names.take(name))?;
            }
        }
        ensure!(
            is_subject(&info.subject, &organization, &common_name),
            "its subject is not an organization and a name"
        );
        let written = [VERSION, info.subject.as_raw(), info.subject_pki.raw, &names.attributes()].concat();
        ensure!(is_whole(&der, &value(tag::SEQUENCE, &[&written])), "it says more than was understood");
        let Names { names, addresses, .. } = names;
        let key = pki::digits(info.subject_pki.raw);
        Ok(Self { organization, common_name, names, addresses, key })
    }
}

/// The content of the one block that a text is.
fn block(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(&format!("-----BEGIN {LABEL}-----\n"))?;
    let (inner, _) = inner.split_once("\n-----END")?;
    let der = BASE64_STANDARD.decode(inner.replace('\n', "")).ok()?;
    let written = pki::pem(LABEL, &der);
    (text == written || text == written.trim_end()).then_some(der)
}

fn one<'a, E>(mut values: impl Iterator<Item = Result<&'a str, E>>) -> anyhow::Result<String> {
    match (values.next(), values.next()) {
        (Some(Ok(value)), None) => Ok(value.to_owned()),
        _ => bail!("its subject is not an organization and a name"),
    }
}

/// Whether a subject is these two in this order, as Go writes them or as the agent does.
fn is_subject(subject: &X509Name<'_>, organization: &str, common_name: &str) -> bool {
    let part = |oid: &[u8], kind: u8, text: &str| {
        let pair = value(tag::SEQUENCE, &[oid, &value(kind, &[text.as_bytes()])]);
        value(tag::SET, &[&pair])
    };
    let kinds = [tag::PRINTABLE, tag::UTF8];
    let mut written = kinds.into_iter().flat_map(|first| kinds.map(|second| (first, second))).map(|(first, second)| {
        let parts = [part(ORGANIZATION, first, organization), part(COMMON_NAME, second, common_name)].concat();
        value(tag::SEQUENCE, &[&parts])
    });
    written.any(|written| written == subject.as_raw())
}

/// Whether a request begins with this information, and its lengths are written as DER has them. Algorithm and signature follow.
fn is_whole(der: &[u8], information: &[u8]) -> bool {
    (2..=4)
        .filter_map(|header| der.get(header..))
        .any(|content| content.starts_with(information) && value(tag::SEQUENCE, &[content]) == der)
}

/// Names that were read, and how they are written.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    addresses: Vec<Ipv4Addr>,
    written: Vec<u8>,
}

impl Names {
    fn take(&mut self, name: &GeneralName<'_>) -> anyhow::Result<()> {
        match name {
            GeneralName::DNSName(name) => {
                self.written.extend(value(tag::DNS_NAME, &[name.as_bytes()]));
                self.names.push((*name).to_owned());
            }
            // Of sixteen bytes an address may be one of four as well: Go writes it as such into the certificate.
            GeneralName::IPAddress(bytes) => {
                let octets = <[u8; 4]>::try_from(*bytes).ok().context("it names an address that is not IPv4")?;
                self.written.extend(value(tag::ADDRESS, &[*bytes]));
                self.addresses.push(Ipv4Addr::from(octets));
            }
            _ => bail!("it names what is neither a DNS name nor an address"),
        }
        Ok(())
    }

    /// The attributes of a request that asks for these names and for nothing else.
    fn attributes(&self) -> Vec<u8> {
        if self.written.is_empty() {
            return value(tag::ATTRIBUTES, &[]);
        }
        let listed = value(tag::OCTETS, &[&value(tag::SEQUENCE, &[&self.written])]);
        let extension = value(tag::SEQUENCE, &[ALTERNATIVE_NAMES, &listed]);
        let set = value(tag::SET, &[&value(tag::SEQUENCE, &[&extension])]);
        value(tag::ATTRIBUTES, &[&value(tag::SEQUENCE, &[EXTENSIONS, &set])])
    }
}

/// A value as DER writes it (X.690, sections 8.1 and 10.1).
fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut written = vec![tag];
    match digits {
        [] => written.push(0),
        [short] if *short < 0x80 => written.push(*short),
        digits => {
            written.push(0x80 | u8::try_from(digits.len()).unwrap_or(u8::MAX));
            written.extend(digits);
        }
    }
    written.extend(content);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{Attribute, CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SanType};

    fn params() -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:w1");
        params
    }

    fn pem(params: &CertificateParams) -> String {
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    fn with_names(names: &[&str], addresses: &[&str]) -> CertificateParams {
        let mut params = params();
        let names = names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
        let addresses = addresses.iter().map(|address| SanType::IpAddress(address.parse().unwrap()));
        params.subject_alt_names = names.chain(addresses).collect();
        params
    }

    fn read(text: &str) -> anyhow::Result<CsrContent> {
        CsrContent::read(&BASE64_STANDARD.encode(text))
    }

    fn refused(text: &str, why: &str) {
        let error = format!("{:#}", read(text).expect_err(why));
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn requests_of_kubelets_and_the_agent_are_read() {
        let asked = read(&pem(&with_names(&["w1"], &["10.0.0.21", "10.0.0.22"]))).unwrap();
        assert_eq!((asked.organization.as_str(), asked.common_name.as_str()), ("system:nodes", "system:node:w1"));
        assert_eq!(asked.names, ["w1"]);
        assert_eq!(asked.addresses, [Ipv4Addr::new(10, 0, 0, 21), Ipv4Addr::new(10, 0, 0, 22)]);
        let bare = read(&pem(&params())).unwrap();
        assert!(bare.names.is_empty() && bare.addresses.is_empty());
        // A worker reports its key in the same form as the records have it.
        let key = KeyPair::generate().unwrap();
        let asked = read(&params().serialize_request(&key).unwrap().pem().unwrap()).unwrap();
        assert_eq!(asked.key, pki::digits(&key.subject_public_key_info()));
        // Made by Go's crypto/x509, as a kubelet's is, with a trailing line end and without one.
        let go = include_str!("kubelet.csr");
        let asked = read(go).unwrap();
        assert_eq!(
            (asked.common_name.as_str(), asked.names.as_slice()),
            ("system:node:worker1", &["worker1".to_owned()][..])
        );
        assert_eq!(asked.addresses, [Ipv4Addr::new(10, 0, 0, 21)]);
        assert_eq!(read(go.trim_end()).unwrap(), asked);
    }

    #[test]
    fn ambiguous_texts_are_refused() {
        let (honest, other) = (pem(&with_names(&["w1"], &["10.0.0.21"])), pem(&with_names(&["w1"], &["10.0.0.10"])));
        let why = "not one block";
        // Go goes on with the next block where the end is another one's.
        refused(&[honest.replace("END CERTIFICATE REQUEST", "END X"), other.clone()].concat(), why);
        refused(&[honest.clone(), other.clone()].concat(), why);
        for text in [
            format!("a text\n{honest}"),
            format!("{honest}a text"),
            format!("{honest}\n"),
            honest.replace('\n', "\r\n"),
            honest.replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1),
            honest.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            honest.replacen("-----\n", "-----\n\n", 1),
            honest.replacen("-----\n", "----- \n", 1),
            honest
                .lines()
                .enumerate()
                .map(|(at, line)| if at == 1 { line.to_owned() } else { format!("{line}\n") })
                .collect(),
            String::new(),
        ] {
            refused(&text, why);
        }
        refused(&format!("{honest}{}", " ".repeat(LONGEST)), "longer");
    }

    #[test]
    fn whatever_else_a_request_asks_for_is_refused() {
        let mut mail = with_names(&["w1"], &[]);
        mail.subject_alt_names.push(SanType::Rfc822Name("a@example.com".try_into().unwrap()));
        refused(&pem(&mail), "neither a DNS name nor an address");
        refused(&pem(&with_names(&[], &["::ffff:10.0.0.10"])), "not IPv4");
        let mut two = params();
        two.distinguished_name.push(DnType::OrganizationalUnitName, "x");
        refused(&pem(&two), "its subject");
        let mut authority = with_names(&["w1"], &[]);
        authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        refused(&pem(&authority), "besides names");
        // A second list of extensions, which another parser may take in place of the first, and another attribute.
        let listed = value(tag::SEQUENCE, &[&value(tag::ADDRESS, &[&[10, 0, 0, 10]])]);
        let extension = value(tag::SEQUENCE, &[ALTERNATIVE_NAMES, &value(tag::OCTETS, &[&listed])]);
        let second = value(tag::SET, &[&value(tag::SEQUENCE, &[&extension])]);
        for oid in [&[1, 2, 840, 113_549, 1, 9, 14][..], &[1, 2, 840, 113_549, 1, 9, 7]] {
            let oid: &'static [u64] = Vec::leak(oid.to_vec());
            let attribute = Attribute { oid, values: second.clone() };
            let key = KeyPair::generate().unwrap();
            let request = with_names(&["w1"], &["10.0.0.21"]).serialize_request_with_attributes(&key, vec![attribute]);
            assert!(read(&request.unwrap().pem().unwrap()).is_err());
        }
    }

    #[test]
    fn each_byte_of_a_request_counts() {
        let honest = include_str!("kubelet.csr");
        let (der, asked) = (block(honest).unwrap(), read(honest).unwrap());
        let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
        let info = &request.certification_request_info;
        let find = |part: &[u8]| der.windows(part.len()).position(|window| window == part).unwrap();
        let (key, end) = (find(info.subject_pki.raw), find(info.raw) + info.raw.len());
        let (key, signature) = (key..key + info.subject_pki.raw.len(), end..der.len());
        for (at, flipped) in (0..der.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            let mut der = der.clone();
            der[at] ^= flipped;
            let same = read(&pki::pem(LABEL, &der)).is_ok_and(|after| after == asked);
            assert!(!same || key.contains(&at) || signature.contains(&at), "byte {at}");
        }
    }
}
