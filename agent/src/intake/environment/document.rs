//! The OVF environment document (DSP0243 1.1.0, section 11 and annex). The Ethernet adapters are VMware's addition.

use std::fmt;
use std::ops::Range;

use contract::codes;
use contract::finding::{Finding, Findings};
use contract::properties::{self, Property};
use roxmltree::{Error, Node, ParsingOptions};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::host::hex;

/// Largest document, in bytes. Real ones have a few kilobytes.
pub const LARGEST: usize = 1 << 20;

/// Most XML nodes. It limits the memory for a document of tiny elements.
const MOST_NODES: u32 = 10_000;

/// Most attributes of one element, because the XML reader compares each with each.
const MOST_ATTRIBUTES: usize = 500;

/// The comment that scrubbing adds. It distinguishes a scrubbed document from one whose secrets were never set.
const SCRUBBED: &str = " The OVF environment was read and its secrets were removed. ";

/// The document's name in messages.
const SUBJECT: &str = "OVF environment";

const OVF: &str = "http://schemas.dmtf.org/ovf/environment/1";
const VMWARE: &str = "http://www.vmware.com/schema/ovfenv";

/// A well-formed OVF environment that is not validated. `Debug` shows no values.
pub struct Document {
    properties: Vec<(String, Zeroizing<String>)>,
    adapters: Vec<Adapter>,
    scrubbed: bool,
}

/// A virtual network adapter in the hypervisor's document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// MAC address, lower-case with colons. `None` if it could not be parsed.
    pub mac: Option<String>,
    /// Name of the network it is connected to.
    pub network: Option<String>,
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.properties.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("Document").field("keys", &keys).field("adapters", &self.adapters).finish()
    }
}

impl Document {
    /// Errors have positions but no text, because the text contains secrets.
    pub fn parse(bytes: &[u8]) -> Result<Self, Finding> {
        let text = text(bytes)?;
        let tree = tree(text)?;
        let root = tree.root_element();
        if !root.has_tag_name((OVF, "Environment")) {
            return Err(codes::ENVIRONMENT_WRONG_ROOT.finding(
                SUBJECT,
                format!(
                    "the root element is {} in the namespace {}",
                    properties::parse::quoted(root.tag_name().name()),
                    properties::parse::quoted(root.tag_name().namespace().unwrap_or_default())
                ),
                format!("Give a document whose root is Environment in the namespace {OVF}"),
            ));
        }
        // Only this VM's sections: those of its neighbours in a vApp are in Entity elements.
        let own = |namespace: &'static str, section: &'static str, entry: &'static str| {
            let sections = root.children().filter(move |node| node.has_tag_name((namespace, section)));
            sections.flat_map(|node| node.children()).filter(move |node| node.has_tag_name((namespace, entry)))
        };
        let properties: Vec<_> = own(OVF, "PropertySection", "Property")
            .filter_map(|node| {
                let key = attribute(node, OVF, "key")?;
                let value = attribute(node, OVF, "value").unwrap_or_default();
                Some((key.to_owned(), Zeroizing::new(value.to_owned())))
            })
            .collect();
        if properties.is_empty() {
            return Err(codes::ENVIRONMENT_NO_PROPERTIES.finding(
                SUBJECT,
                "there is no property in it",
                "Deploy the VM from the OVA, with its vApp options left on",
            ));
        }
        let slot = |node: &Node| attribute(*node, VMWARE, "unitNumber").and_then(|number| number.parse::<u32>().ok());
        let mut nodes: Vec<_> = own(VMWARE, "EthernetAdapterSection", "Adapter").collect();
        nodes.sort_by_key(|node| slot(node).unwrap_or(u32::MAX));
        let adapters = nodes
            .into_iter()
            .map(|node| Adapter {
                mac: attribute(node, VMWARE, "mac").and_then(mac),
                network: attribute(node, VMWARE, "network").map(str::to_owned).filter(|name| !name.is_empty()),
            })
            .collect();
        Ok(Self { properties, adapters, scrubbed: is_marked(&tree) })
    }

    /// A document with these values, from the operator's input on the node.
    pub fn of(properties: Vec<(String, Zeroizing<String>)>, adapters: Vec<Adapter>) -> Self {
        Self { properties, adapters, scrubbed: false }
    }

    /// The same document with other values for these properties. Former entries for them are removed, with any key. An
    /// empty value removes a property.
    pub fn with_changes<'a>(mut self, changes: impl IntoIterator<Item = (&'static Property, &'a str)>) -> Self {
        for (property, value) in changes {
            self.properties.retain(|(key, _)| !names(key, property));
            self.properties.push((property.key.to_owned(), Zeroizing::new(value.to_owned())));
        }
        self
    }

    /// The network adapters in the order of their slots. May be empty.
    pub fn adapters(&self) -> &[Adapter] {
        &self.adapters
    }

    /// The value of a property. Keys have the form `[class.]key[.instance]`, and the plain key takes precedence. An
    /// empty value is `None`. Two different values are an error.
    pub fn value(&self, property: &Property) -> Result<Option<&str>, Finding> {
        let plain = self.properties.iter().filter(|(key, _)| key == property.key);
        let mut candidates: Vec<_> = plain.filter(|(_, value)| !value.is_empty()).collect();
        if candidates.is_empty() {
            let dotted = self.properties.iter().filter(|(key, _)| key.contains('.') && names(key, property));
            candidates = dotted.filter(|(_, value)| !value.is_empty()).collect();
        }
        match candidates.as_slice() {
            [] => Ok(None),
            [(_, first), others @ ..] if others.iter().all(|(_, other)| other == first) => Ok(Some(first.as_str())),
            several => Err(codes::ENVIRONMENT_DUPLICATE.finding(
                property.key,
                format!("the OVF environment has {} different values for it", several.len()),
                "Leave one of them",
            )),
        }
    }

    /// Reports properties that are unknown to the appliance. Those of other products, which have a class, are ignored.
    pub fn unknown(&self) -> Findings {
        const SHOWN: usize = 8;
        let mut keys: Vec<&str> = self.properties.iter().map(|(key, _)| key.as_str()).collect();
        keys.retain(|key| !key.contains('.') && properties::find(key).is_none());
        if keys.is_empty() {
            return Findings::default();
        }
        let mut shown =
            keys.iter().take(SHOWN).map(|key| properties::parse::quoted(key)).collect::<Vec<_>>().join(", ");
        if keys.len() > SHOWN {
            shown.push_str(&format!(" and {} more", keys.len() - SHOWN));
        }
        codes::ENVIRONMENT_UNKNOWN
            .finding(SUBJECT, format!("there are unknown properties: {shown}"), "Look for typing mistakes in the keys")
            .into()
    }

    /// Identifies the properties: the SHA-256 of keys and values, in hexadecimal digits. `None` without a deployment
    /// secret or a join token, because the document was then read before and scrubbed. With one, the other values
    /// cannot be guessed from the hash.
    pub fn fingerprint(&self) -> Option<String> {
        let has = |key| matches!(properties::find(key).map(|property| self.value(property)), Some(Ok(Some(_))));
        if ![properties::DEPLOYMENT_SECRET, properties::JOIN_TOKEN].into_iter().any(has) {
            return None;
        }
        let mut pairs: Vec<_> = self.properties.iter().collect();
        pairs.sort_by(|one, other| (&one.0, one.1.as_str()).cmp(&(&other.0, other.1.as_str())));
        let mut hash = Sha256::new();
        for (key, value) in pairs {
            for text in [key.as_str(), value.as_str()] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
        }
        Some(hex::lower(&hash.finalize()))
    }

    /// The keys of the table's properties that differ between two documents. A secret that one of them lacks was
    /// scrubbed and does not count.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differ = |property: &&Property| match (self.value(property), other.value(property)) {
            (Ok(None), Ok(_)) | (Ok(_), Ok(None)) if property.scrubbed() => false,
            (one, other) => one != other,
        };
        properties::table().iter().filter(differ).map(|property| property.key).collect()
    }

    /// Whether this document was read and scrubbed before: it has the comment and no secret. A document that only lacks
    /// its secrets was not.
    pub fn is_scrubbed(&self) -> bool {
        let lacks = |row: &Property| matches!(self.value(row), Ok(None));
        self.scrubbed && properties::table().iter().filter(|row| row.scrubbed()).all(lacks)
    }

    /// Whether this document has all secrets that `other` has.
    pub fn has_secrets_of(&self, other: &Self) -> bool {
        let has = |document: &Self, property| document.value(property).is_ok_and(|value| value.is_some());
        properties::table().iter().filter(|row| row.scrubbed()).all(|row| has(self, row) || !has(other, row))
    }
}

fn is_marked(tree: &roxmltree::Document<'_>) -> bool {
    tree.root().children().any(|node| node.is_comment() && node.text() == Some(SCRUBBED))
}

/// The same document with empty secrets, this VM's and its neighbours', and a comment about that. `None` if it has no
/// secret.
pub fn scrubbed(bytes: &[u8]) -> Result<Option<String>, Finding> {
    let text = text(bytes)?;
    let tree = tree(text)?;
    let mut secrets: Vec<Range<usize>> = Vec::new();
    for node in tree.descendants().filter(|node| node.has_tag_name((OVF, "Property"))) {
        let is_secret = attribute(node, OVF, "key")
            .is_some_and(|key| properties::table().iter().any(|property| property.scrubbed() && names(key, property)));
        let values = node.attributes().filter(|attribute| attribute.name() == "value" && !attribute.value().is_empty());
        secrets.extend(values.filter(|_| is_secret).map(|attribute| attribute.range_value()));
    }
    if secrets.is_empty() {
        return Ok(None);
    }
    let mut clean = String::with_capacity(text.len());
    let mut copied = 0;
    for secret in secrets {
        clean.push_str(&text[copied..secret.start]);
        copied = secret.end;
    }
    clean.push_str(&text[copied..]);
    if !is_marked(&tree) {
        clean.push_str(&format!("<!--{SCRUBBED}-->"));
    }
    Ok(Some(clean))
}

/// Whether an environment key, `[class.]key[.instance]`, names a property. An ambiguous one is parsed as class and key.
fn names(key: &str, property: &Property) -> bool {
    let known = |segment: &&str| properties::find(segment).is_some();
    let segments: Vec<&str> = key.split('.').collect();
    let found = match segments.as_slice() {
        [only] => Some(*only),
        [first, last] => [*last, *first].into_iter().find(known),
        [.., key, last] => [*key, *last].into_iter().find(known),
        [] => None,
    };
    found == Some(property.key)
}

fn attribute<'a>(node: Node<'a, '_>, namespace: &str, name: &str) -> Option<&'a str> {
    node.attribute((namespace, name)).or_else(|| node.attribute(name))
}

/// A MAC address in lower case with colons, if it is valid.
fn mac(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = text
        .split([':', '-'])
        .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2 && !byte.starts_with('+')))
        .collect();
    let bytes = bytes.filter(|bytes| bytes.len() == 6 && bytes.iter().any(|byte| *byte != 0))?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

/// The text of a document, without NUL bytes and white space that some transports add, and without a byte order mark.
fn text(bytes: &[u8]) -> Result<&str, Finding> {
    if bytes.len() > LARGEST {
        return Err(too_large(format!("it has more than {LARGEST} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        codes::ENVIRONMENT_NOT_UTF8.finding(
            SUBJECT,
            format!("byte {} does not belong to UTF-8 text", error.valid_up_to() + 1),
            "Save the document as UTF-8",
        )
    })?;
    Ok(text.trim_start_matches('\u{feff}').trim_matches(|c: char| c.is_whitespace() || c == '\0'))
}

fn tree(text: &str) -> Result<roxmltree::Document<'_>, Finding> {
    if text.split('<').any(|tag| attributes(tag) > MOST_ATTRIBUTES) {
        return Err(too_large(format!("an element has more than {MOST_ATTRIBUTES} attributes")));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    roxmltree::Document::parse_with_options(text, options).map_err(|error| {
        let place = format!("line {}, column {}", error.pos().row, error.pos().col);
        let again = "Deploy the VM again, or give a complete document";
        match error {
            Error::DtdDetected => codes::ENVIRONMENT_ENTITIES.finding(
                SUBJECT,
                "it declares a document type, which could define entities",
                "Give a document without <!DOCTYPE",
            ),
            Error::NodesLimitReached => too_large(format!("it has more than {MOST_NODES} XML nodes")),
            Error::UnclosedRootNode | Error::UnexpectedEndOfStream if text.starts_with('<') => {
                codes::ENVIRONMENT_TRUNCATED.finding(SUBJECT, "it ends in the middle of the XML document", again)
            }
            _ if text.starts_with('<') && !text.ends_with('>') => {
                codes::ENVIRONMENT_TRUNCATED.finding(SUBJECT, "it ends in the middle of the XML document", again)
            }
            Error::NoRootNode => codes::ENVIRONMENT_MALFORMED.finding(SUBJECT, "it has no XML element", again),
            _ => codes::ENVIRONMENT_MALFORMED.finding(SUBJECT, format!("it is not well-formed XML at {place}"), again),
        }
    })
}

/// An upper limit of a tag's attributes: equals signs before a quote.
fn attributes(tag: &str) -> usize {
    tag.split('=').skip(1).filter(|rest| rest.trim_start().starts_with(['"', '\''])).count()
}

fn too_large(seen: String) -> Finding {
    codes::ENVIRONMENT_TOO_LARGE.finding(SUBJECT, seen, "Give a document as vCenter writes it, of a few kilobytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::properties::{CONSOLE_PASSWORD_HASH, DEPLOYMENT_SECRET, NODE_NAME};

    const GOOD: &str = include_str!("fixtures/three-nodes.xml");

    fn value(document: &Document, key: &str) -> Option<String> {
        document.value(properties::find(key).unwrap()).unwrap().map(str::to_owned)
    }

    fn code(bytes: &[u8]) -> String {
        Document::parse(bytes).unwrap_err().code
    }

    fn document(properties: &[(&str, &str)]) -> Document {
        let rows: String =
            properties.iter().map(|(key, value)| format!(r#"<Property e:key="{key}" e:value="{value}"/>"#)).collect();
        let text = format!(
            r#"<Environment xmlns="{OVF}" xmlns:e="{OVF}"><PropertySection>{rows}</PropertySection></Environment>"#
        );
        Document::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn document_of_vcenter_is_parsed() {
        let document = Document::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(value(&document, NODE_NAME).as_deref(), Some("cp1"));
        assert_eq!(value(&document, DEPLOYMENT_SECRET).as_deref(), Some(r#"x7$Qm!p2<Wz&9%rT'v"B ü"#));
        assert_eq!(value(&document, CONSOLE_PASSWORD_HASH), None, "an empty value is none");
        assert_eq!(
            document.adapters(),
            [Adapter { mac: Some("00:50:56:99:c0:4c".into()), network: Some("Management & Control".into()) }]
        );
        assert!(document.unknown().is_empty());
        assert!(!format!("{document:?}").contains("x7$Qm"));
    }

    #[test]
    fn document_of_another_kind_is_refused() {
        assert_eq!(code(b"<Environment/>"), "environment.wrong-root");
        assert_eq!(code(GOOD.replace("Environment", "Envelope").as_bytes()), "environment.wrong-root");
        let empty = format!(r#"<Environment xmlns="{OVF}"><PropertySection/></Environment>"#);
        assert_eq!(code(empty.as_bytes()), "environment.no-properties");
    }

    #[test]
    fn fingerprint_differs_by_property_and_requires_the_secret() {
        let of = |properties: &[(&str, &str)]| document(properties).fingerprint();
        let secret = (DEPLOYMENT_SECRET, "s");
        let one = of(&[(NODE_NAME, "cp1"), secret]).unwrap();
        assert_eq!(of(&[secret, (NODE_NAME, "cp1")]).unwrap(), one, "the order does not matter");
        assert_ne!(of(&[(NODE_NAME, "cp2"), secret]).unwrap(), one);
        assert_ne!(of(&[(NODE_NAME, "cp1"), (DEPLOYMENT_SECRET, "t")]).unwrap(), one);
        assert_ne!(of(&[(NODE_NAME, ""), ("cp1", ""), secret]), of(&[(NODE_NAME, "cp1"), ("", ""), secret]));
        assert!(of(&[(NODE_NAME, "w1"), ("join-token", "abcdef.0123456789abcdef")]).is_some(), "a worker's");
        assert_eq!(of(&[(NODE_NAME, "cp1"), (DEPLOYMENT_SECRET, "")]), None, "a scrubbed one was read before");
    }

    #[test]
    fn any_prefix_is_accepted_and_neighbours_ignored() {
        let document = Document::parse(include_bytes!("fixtures/other-prefixes.xml")).unwrap();
        assert_eq!(value(&document, NODE_NAME).as_deref(), Some("cp1"));
        assert_eq!(value(&document, "address"), None);
        assert_eq!(document.adapters(), []);
    }

    #[test]
    fn adapters_are_in_the_order_of_their_slots() {
        let one = r#"<ve:Adapter ve:mac="00:50:56:99:C0:4C""#;
        let two = format!(r#"<ve:Adapter ve:mac="00:50:56:00:00:02" ve:network="" ve:unitNumber="8"/>{one}"#);
        let document = Document::parse(GOOD.replace(one, &two).as_bytes()).unwrap();
        let macs: Vec<_> = document.adapters().iter().map(|adapter| adapter.mac.as_deref().unwrap()).collect();
        assert_eq!(macs, ["00:50:56:99:c0:4c", "00:50:56:00:00:02"]);
        assert_eq!(document.adapters()[1].network, None);
    }

    #[test]
    fn bom_padding_and_nul_bytes_are_ignored() {
        for text in [format!("\u{feff}{GOOD}"), format!("\n  {GOOD}\0\0\n")] {
            assert!(Document::parse(text.as_bytes()).is_ok());
        }
    }

    #[test]
    fn classes_and_instances_are_understood() {
        for key in ["product.node-name", "node-name.1", "product.node-name.1", "org.example.product.node-name.1"] {
            assert_eq!(value(&document(&[(key, "cp1")]), NODE_NAME).as_deref(), Some("cp1"), "{key}");
        }
        let both = document(&[("vami.address.VM", "1"), ("address", "2")]);
        assert_eq!(value(&both, "address").as_deref(), Some("2"), "the plain key counts first");
        assert_eq!(value(&document(&[("address.gateway", "1")]), "address"), None);
    }

    #[test]
    fn duplicates_are_refused_unless_equal() {
        let property = properties::find(NODE_NAME).unwrap();
        assert_eq!(value(&document(&[("node-name", "a"), ("node-name", "a")]), NODE_NAME).as_deref(), Some("a"));
        assert_eq!(value(&document(&[("node-name", ""), ("node-name", "a")]), NODE_NAME).as_deref(), Some("a"));
        let twice = document(&[("node-name", "a"), ("node-name", "b")]);
        assert_eq!(twice.value(property).unwrap_err().code, "environment.duplicate-property");
        let classes = document(&[("x.node-name", "a"), ("y.node-name", "b")]);
        assert_eq!(classes.value(property).unwrap_err().code, "environment.duplicate-property");
    }

    #[test]
    fn unknown_plain_keys_are_named_once() {
        let unknown = document(&[("node_name", "a"), ("vami.ip0.VM", "b"), ("node-name", "c")]).unknown();
        assert_eq!(unknown.iter().count(), 1);
        assert!(unknown.to_string().contains("\"node_name\"") && !unknown.to_string().contains("vami"));
    }

    #[test]
    fn rejected_files_give_the_code_in_their_name() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/intake/environment/fixtures/rejected");
        let mut seen = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            // The name has the code, then the mistake: malformed.bare-ampersand.xml
            let name = path.file_name().unwrap().to_str().unwrap();
            let expected = format!("environment.{}", name.split('.').next().unwrap());
            let finding = Document::parse(&std::fs::read(&path).unwrap()).unwrap_err();
            assert_eq!(finding.code, expected, "{name}");
            assert!(!finding.to_string().contains("hunter2"), "{finding}");
            seen += 1;
        }
        assert!(seen >= 10, "{seen}");
    }

    #[test]
    fn every_truncation_is_detected() {
        let end = GOOD.trim_end().len();
        for cut in 0..end {
            let expected = if GOOD[..GOOD.floor_char_boundary(cut)].trim().is_empty() || !GOOD.is_char_boundary(cut) {
                continue;
            } else {
                ["environment.truncated", "environment.malformed"]
            };
            let code = code(&GOOD.as_bytes()[..cut]);
            assert!(expected.contains(&code.as_str()), "cut at {cut}: {code}");
        }
        assert_eq!(code(&GOOD.as_bytes()[..GOOD.find('ü').unwrap() + 1]), "environment.not-utf8");
        assert_eq!(code(&GOOD.as_bytes()[..end / 2]), "environment.truncated");
    }

    #[test]
    fn large_documents_are_refused_quickly() {
        assert_eq!(code(&vec![b' '; LARGEST + 1]), "environment.too-large");
        assert_eq!(code(format!("<a>{}</a>", "<b/>".repeat(20_000)).as_bytes()), "environment.too-large");
        assert_eq!(code("<a>".repeat(LARGEST / 3).as_bytes()), "environment.too-large");
        let attributes: String = (0..60_000).map(|index| format!(" a{index}=''")).collect();
        assert_eq!(code(format!("<a{attributes}/>").as_bytes()), "environment.too-large");
        assert_eq!(code(format!("<a{}/>", attributes.replace('=', " \n= ")).as_bytes()), "environment.too-large");
    }

    #[test]
    fn scrubbing_removes_only_the_secrets() {
        let clean = scrubbed(GOOD.as_bytes()).unwrap().unwrap();
        let (before, after) = (Document::parse(GOOD.as_bytes()).unwrap(), Document::parse(clean.as_bytes()).unwrap());
        for property in properties::table() {
            let expected = if property.scrubbed() { None } else { value(&before, property.key) };
            assert_eq!(value(&after, property.key), expected, "{}", property.key);
        }
        assert_eq!(before.adapters(), after.adapters());
        assert!(!clean.contains("x7$Qm") && !clean.contains("neighbour-secret") && !clean.contains("proxypass"));
        assert_eq!(scrubbed(clean.as_bytes()), Ok(None));
        assert_eq!(before.differences(&after), Vec::<&str>::new());
        assert!(after.is_scrubbed() && !before.is_scrubbed());
        let refilled = clean.replace("deployment-secret\" oe:value=\"", "deployment-secret\" oe:value=\"again");
        assert!(refilled != clean && !Document::parse(refilled.as_bytes()).unwrap().is_scrubbed());
        let again = scrubbed(refilled.as_bytes()).unwrap().unwrap();
        assert_eq!(again, clean, "it is said once");
        let never_filled = clean.replace(&format!("<!--{SCRUBBED}-->"), "");
        assert!(!Document::parse(never_filled.as_bytes()).unwrap().is_scrubbed());
        assert!(before.has_secrets_of(&after) && !after.has_secrets_of(&before));
    }

    #[test]
    fn macs_are_normalised() {
        assert_eq!(mac("00-50-56-AB-CD-EF").as_deref(), Some("00:50:56:ab:cd:ef"));
        for text in
            ["", "00:00:00:00:00:00", "00:50:56:ab:cd", "00:50:56:ab:cd:eg", "0:50:56:ab:cd:ef", "+0:50:56:ab:cd:ef"]
        {
            assert_eq!(mac(text), None, "{text}");
        }
    }
}
