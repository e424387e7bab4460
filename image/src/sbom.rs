//! The list of an image's parts, as an SPDX document. Source: SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/)
//! and package URLs (https://github.com/package-url/purl-spec). Equal parts give equal bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use ova::signature::Signer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cache::hex;
use crate::component::Component;
use crate::debian::lock::{Lock, Package};
use crate::licences::LicensedPart;
use crate::spec::{Identity, Spec};

/// The document's place in the image.
pub const PLACE: &str = "usr/share/kaas/sbom.spdx.json";
const DOCUMENT: &str = "SPDXRef-DOCUMENT";

/// The packages of the document by ID, and which contains which.
#[derive(Default)]
struct Parts {
    packages: BTreeMap<String, Value>,
    relations: Vec<Value>,
}

impl Parts {
    /// Adds a part with further fields below its container, and returns its ID. A part in several containers is one
    /// package.
    fn add(
        &mut self,
        within: &str,
        kind: &str,
        (name, version): (&str, &str),
        licence: Option<&str>,
        more: &[(&str, Value)],
    ) -> String {
        // An ID can have letters, digits, `.` and `-`. The digest distinguishes names with other characters.
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let digest = hex(&Sha256::digest(format!("{name}\0{version}")));
        let id = format!("SPDXRef-{kind}-{}-{}-{}", plain(name), plain(version), &digest[..8]);
        let relation = if within == DOCUMENT { "DESCRIBES" } else { "CONTAINS" };
        self.relations.push(json!({ "spdxElementId": within, "relationshipType": relation, "relatedSpdxElement": id }));
        let mut package = json!({
            "SPDXID": id,
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": licence.unwrap_or("NOASSERTION"),
            "copyrightText": "NOASSERTION",
        });
        for (field, value) in more {
            package[*field] = value.clone();
        }
        self.packages.insert(id.clone(), package);
        id
    }

    fn add_linked(&mut self, within: &str, kind: &str, purl_type: &str, linked: &[LicensedPart]) {
        for LicensedPart { name, version, licence, .. } in linked {
            self.add(within, kind, (name, version), licence.as_deref(), &[purl(purl_type, name, version, "")]);
        }
    }
}

/// The document of an image. It has Debian's packages, the upstream components with their linked modules, and our own
/// programs with Rust's library and their linked crates. `epoch` is the time of everything in the image.
pub fn document(
    spec: &Spec,
    lock: &Lock,
    components: &[(&Component, Vec<LicensedPart>)],
    programs: &[String],
    (library, crates): (&LicensedPart, &[LicensedPart]),
    epoch: u64,
) -> Result<String> {
    let Identity { name, version: own_version, .. } = &spec.identity;
    let mut parts = Parts::default();
    let image = parts.add(DOCUMENT, "Image", (name, own_version), None, &[]);
    for Package { name, version, path, sha256, .. } in lock.packages.iter().chain(&lock.kernel) {
        let architecture = if path.ends_with("_all.deb") { "all" } else { "amd64" };
        let purl = purl("deb/debian", name, version, &format!("?arch={architecture}&distro={}", lock.suite));
        let checksums = json!([{ "algorithm": "SHA256", "checksumValue": sha256 }]);
        parts.add(&image, "Debian", (name, version), None, &[purl, ("checksums", checksums)]);
    }
    for (Component { name, version, licence, .. }, modules) in components {
        let component = parts.add(&image, "Component", (name, version), Some(licence), &[]);
        parts.add_linked(&component, "Go", "golang", modules);
    }
    for name in programs {
        let program = parts.add(&image, "Program", (name, own_version), Some("Apache-2.0"), &[]);
        parts.add_linked(&program, "Library", "generic", std::slice::from_ref(library));
        parts.add_linked(&program, "Crate", "cargo", crates);
    }
    let full_name = spec.full_name();
    let packages: Vec<Value> = parts.packages.into_values().collect();
    let content = json!({ "packages": packages, "relationships": parts.relations });
    let digest = hex(&Sha256::digest(content.to_string()));
    let created = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(epoch)).to_string();
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": full_name,
        "documentNamespace": format!("https://kaas.invalid/spdx/{full_name}-{digest}"),
        "creationInfo": { "created": created, "creators": ["Tool: kaas-image"] },
        "packages": packages,
        "relationships": parts.relations,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The field with a package URL. Its type may end with a namespace.
fn purl(purl_type: &str, name: &str, version: &str, qualifiers: &str) -> (&'static str, Value) {
    let name = name.split('/').map(encoded).collect::<Vec<_>>().join("/");
    let purl = format!("pkg:{purl_type}/{name}@{}{qualifiers}", encoded(version));
    let reference =
        json!({ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl });
    ("externalRefs", json!([reference]))
}

/// A part of a package URL, percent-encoded.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Writes the document next to the OVA: `NAME.spdx.json`, and with a key its signature as `NAME.spdx.cert`, in the form
/// of an OVA's own. Without a key a former signature is removed.
pub fn write_next_to(ova: &Path, document: &str, signer: Option<&Signer>) -> Result<()> {
    let (file, certificate) = ova::archive::sbom_of(ova);
    let name = file.file_name().context("the OVA has no name")?.to_string_lossy().into_owned();
    // A signature of another document must never be next to this one, even if the command is killed here.
    if certificate.exists() {
        std::fs::remove_file(&certificate).with_context(|| format!("removing {}", certificate.display()))?;
    }
    std::fs::write(&file, document).with_context(|| format!("writing {}", file.display()))?;
    if let Some(signer) = signer {
        let signed = signer.sign(&name, document.as_bytes()).with_context(|| format!("signing {name}"))?;
        std::fs::write(&certificate, signed).with_context(|| format!("writing {}", certificate.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::lock::{Index, Pocket};

    /// The document of a small image in which two parts link one module, and the agent one crate.
    fn made(version: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (spec, described) = crate::spec::read(&path).unwrap();
        let (pocket, sha256) = (Pocket::Release, "ab".repeat(32));
        let indexes = vec![Index { pocket, date: 1_700_000_000, sha256: sha256.clone() }];
        let package = Package {
            name: "libstdc++6".into(),
            version: "1:14.2.0-19+b1".into(),
            pocket,
            path: "pool/l_amd64.deb".into(),
            size: 7,
            sha256,
        };
        let lock = Lock { suite: "trixie".into(), request: "r".into(), indexes, packages: vec![package], kernel: None };
        let part = |name: &str, version: &str, licence: Option<&str>| LicensedPart {
            name: name.into(),
            version: version.into(),
            licence: licence.map(str::to_owned),
            texts: vec!["t".into()],
        };
        let modules = vec![part("golang.org/x/net", version, None)];
        let component = |name: &str| described.iter().find(|component| component.name == name).unwrap();
        let components = ["coredns", "etcd"].map(|name| (component(name), modules.clone()));
        let crates = [part("serde", "1.0.0", Some("MIT"))];
        let library = part("rust-std", "1.95.0", Some("MIT OR Apache-2.0"));
        document(&spec, &lock, &components, &["kaas-agent".into()], (&library, &crates), lock.epoch()).unwrap()
    }

    #[test]
    fn each_part_is_once_in_the_document() {
        let document: Value = serde_json::from_str(&made("v0.1.0")).unwrap();
        let packages = document["packages"].as_array().unwrap();
        let find = |name: &str| packages.iter().filter(|package| package["name"] == name).collect::<Vec<_>>();
        assert_eq!(packages.len(), 8, "{packages:#?}");
        let purl = |name: &str| find(name)[0]["externalRefs"][0]["referenceLocator"].as_str().unwrap().to_owned();
        assert_eq!(purl("libstdc++6"), "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2.0-19%2Bb1?arch=amd64&distro=trixie");
        assert_eq!(purl("golang.org/x/net"), "pkg:golang/golang.org/x/net@v0.1.0");
        assert_eq!(purl("serde"), "pkg:cargo/serde@1.0.0");
        assert_eq!(find("libstdc++6")[0]["checksums"][0]["checksumValue"], "ab".repeat(32));
        let net = find("golang.org/x/net");
        assert_eq!((net.len(), &net[0]["licenseDeclared"]), (1, &json!("NOASSERTION")));
        assert_eq!(find("serde")[0]["licenseDeclared"], "MIT");
        let relations = document["relationships"].as_array().unwrap();
        let within = relations.iter().filter(|relation| relation["relatedSpdxElement"] == net[0]["SPDXID"]);
        assert_eq!(within.count(), 2);
        assert_eq!(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        // SPDX 2.3, 7.2.2.
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
        let ids: Vec<&str> = packages.iter().map(|package| package["SPDXID"].as_str().unwrap()).collect();
        assert!(ids.iter().all(|id| id.starts_with("SPDXRef-") && id.chars().all(is_allowed)), "{ids:?}");
        let known = |id: &Value| id == "SPDXRef-DOCUMENT" || packages.iter().any(|package| package["SPDXID"] == *id);
        assert!(
            relations
                .iter()
                .all(|relation| known(&relation["spdxElementId"]) && known(&relation["relatedSpdxElement"]))
        );
    }

    #[test]
    fn equal_parts_give_equal_bytes() {
        assert_eq!(made("v0.1.0"), made("v0.1.0"));
        let namespace = |text: &str| serde_json::from_str::<Value>(text).unwrap()["documentNamespace"].clone();
        assert_ne!(namespace(&made("v0.1.0")), namespace(&made("v0.2.0")));
    }

    #[test]
    fn an_unsigned_document_leaves_no_former_signature() {
        let directory = tempfile::tempdir().unwrap();
        let ova = directory.path().join("kaas-1.2.3.ova");
        let (file, certificate) = ova::archive::sbom_of(&ova);
        assert!(file.ends_with("kaas-1.2.3.spdx.json") && certificate.ends_with("kaas-1.2.3.spdx.cert"));
        std::fs::write(&certificate, "former").unwrap();
        write_next_to(&ova, "{}\n", None).unwrap();
        assert!(file.is_file() && !certificate.exists());
    }
}
