//! The list of what an image is made of, as an SPDX document. Source: SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/)
//! and package URLs (https://github.com/package-url/purl-spec). Equal parts give equal bytes.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use ova::signature::Signer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cache::hex;
use crate::component::build::Built;
use crate::debian::lock::Lock;
use crate::licences::Licensed;
use crate::spec::Spec;

/// The document's place in the image.
pub const PLACE: &str = "usr/share/kaas/sbom.spdx.json";

/// What an image is made of.
pub struct Contents<'c> {
    /// Debian's packages.
    pub lock: &'c Lock,
    /// The upstream parts, each with the modules that are linked into it.
    pub components: Vec<(&'c Built, Vec<Licensed>)>,
    /// Our own programs.
    pub programs: Vec<String>,
    /// The crates that are linked into them.
    pub crates: Vec<Licensed>,
}

/// One package of the document.
struct Part<'p> {
    name: &'p str,
    version: &'p str,
    licence: Option<&'p str>,
    purl: Option<String>,
    sha256: Option<&'p str>,
    comment: Option<String>,
}

/// The document of an image. `epoch` is the time of everything in the image.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn document(spec: &Spec, contents: &Contents<'_>, epoch: u64) -> Result<String> {
    let identity = &spec.identity;
    let mut packages = vec![package(
        "Image",
        &Part {
            name: &identity.name,
            version: &identity.version,
            licence: None,
            purl: None,
            sha256: None,
            comment: None,
        },
    )];
    let mut relations = vec![relation("DOCUMENT", "DESCRIBES", "Image")];
    let mut add = |id: String, part: &Part<'_>, within: &str| {
        relations.push(relation(within, "CONTAINS", &id));
        // A module that several parts link is one package.
        if !packages.iter().any(|package| package["SPDXID"] == reference(&id)) {
            packages.push(package(&id, part));
        }
        id
    };
    let suite = &contents.lock.suite;
    for of_debian in contents.lock.packages.iter().chain(&contents.lock.kernel) {
        let (name, version) = (of_debian.name.as_str(), of_debian.version.as_str());
        let architecture = if of_debian.path.ends_with("_all.deb") { "all" } else { "amd64" };
        let purl = format!("pkg:deb/debian/{}@{}?arch={architecture}&distro={suite}", encoded(name), encoded(version));
        add(
            id("Debian", name, version),
            &Part { name, version, licence: None, purl: Some(purl), sha256: Some(&of_debian.sha256), comment: None },
            "Image",
        );
    }
    for (built, modules) in &contents.components {
        let component = &built.component;
        let comment = Some("The image builder's component of this name".to_owned());
        let part = Part {
            name: &component.name,
            version: &component.version,
            licence: Some(&component.licence),
            purl: None,
            sha256: None,
            comment,
        };
        let own = add(id("Component", &component.name, &component.version), &part, "Image");
        for Licensed { name, version, licence, sum, .. } in modules {
            let purl = format!(
                "pkg:golang/{}@{}",
                name.split('/').map(encoded).collect::<Vec<_>>().join("/"),
                encoded(version)
            );
            let comment = sum.as_ref().map(|sum| format!("go.sum: {sum}"));
            add(
                id("Go", name, version),
                &Part { name, version, licence: licence.as_deref(), purl: Some(purl), sha256: None, comment },
                &own,
            );
        }
    }
    for program in &contents.programs {
        let part = Part {
            name: program,
            version: &identity.version,
            licence: Some("Apache-2.0"),
            purl: None,
            sha256: None,
            comment: None,
        };
        let own = add(id("Program", program, &identity.version), &part, "Image");
        for Licensed { name, version, licence, sum, .. } in &contents.crates {
            let purl = Some(format!("pkg:cargo/{}@{}", encoded(name), encoded(version)));
            add(
                id("Crate", name, version),
                &Part { name, version, licence: licence.as_deref(), purl, sha256: sum.as_deref(), comment: None },
                &own,
            );
        }
    }
    let full_name = spec.full_name();
    let content = json!({ "packages": packages, "relationships": relations });
    let digest = hex(&Sha256::digest(content.to_string()));
    let created = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(epoch)).to_string();
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": full_name,
        "documentNamespace": format!("https://kaas.invalid/spdx/{full_name}-{digest}"),
        "creationInfo": { "created": created, "creators": ["Tool: kaas-image"] },
        "packages": packages,
        "relationships": relations,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn package(id: &str, part: &Part<'_>) -> Value {
    let mut package = json!({
        "SPDXID": reference(id),
        "name": part.name,
        "versionInfo": part.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": part.licence.unwrap_or("NOASSERTION"),
        "copyrightText": "NOASSERTION",
    });
    if let Some(purl) = &part.purl {
        package["externalRefs"] =
            json!([{ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl }]);
    }
    if let Some(sha256) = part.sha256 {
        package["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": sha256 }]);
    }
    if let Some(comment) = &part.comment {
        package["comment"] = json!(comment);
    }
    package
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": reference(from), "relationshipType": kind, "relatedSpdxElement": reference(to) })
}

fn reference(id: &str) -> String {
    format!("SPDXRef-{id}")
}

/// An element's ID: letters, digits, `.` and `-` only. A digest keeps names apart that differ in other characters.
fn id(kind: &str, name: &str, version: &str) -> String {
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let digest = hex(&Sha256::digest(format!("{name}\0{version}")));
    format!("{kind}-{}-{}-{}", plain(name), plain(version), &digest[..8])
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
///
/// # Errors
/// When a file cannot be written or the key does not sign.
pub fn write_next_to(ova: &Path, document: &str, signer: Option<&Signer>) -> Result<()> {
    let (file, certificate) = ova::archive::sbom_of(ova);
    let name = file.file_name().context("the OVA has no name")?.to_string_lossy().into_owned();
    // The signature of another document must not lie next to this one, even if the command is killed here.
    match std::fs::remove_file(&certificate) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", certificate.display()));
        }
        _ => {}
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
    use crate::cache::{Key, Stage};
    use crate::debian::lock::{Index, Package, Pocket};

    /// The document of a tiny image in which two parts link one module, and the agent one crate.
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
        let built = ["coredns", "etcd"].map(|name| Built {
            component: described.iter().find(|component| component.name == name).unwrap().clone(),
            directory: "/".into(),
            key: Key::of(Stage::COMPONENTS).finish(),
        });
        let part = |name: &str, version: &str, sum: &str| Licensed {
            name: name.into(),
            version: version.into(),
            licence: Some("MIT".into()),
            sum: Some(sum.into()),
            texts: vec!["t".into()],
        };
        let modules = vec![part("golang.org/x/net", version, "h1:a=")];
        let contents = Contents {
            lock: &lock,
            components: built.iter().map(|built| (built, modules.clone())).collect(),
            programs: vec!["kaas-agent".into()],
            crates: vec![part("serde", "1.0.0", &"cd".repeat(32))],
        };
        document(&spec, &contents, lock.epoch()).unwrap()
    }

    #[test]
    fn the_document_has_each_part_once_and_all_relations() {
        let document: Value = serde_json::from_str(&made("v0.1.0")).unwrap();
        let packages = document["packages"].as_array().unwrap();
        let find = |name: &str| packages.iter().filter(|package| package["name"] == name).collect::<Vec<_>>();
        assert_eq!(packages.len(), 7, "{packages:#?}");
        let purl = |name: &str| find(name)[0]["externalRefs"][0]["referenceLocator"].as_str().unwrap().to_owned();
        assert_eq!(purl("libstdc++6"), "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2.0-19%2Bb1?arch=amd64&distro=trixie");
        assert_eq!(purl("golang.org/x/net"), "pkg:golang/golang.org/x/net@v0.1.0");
        assert_eq!(purl("serde"), "pkg:cargo/serde@1.0.0");
        assert_eq!(find("serde")[0]["checksums"][0]["checksumValue"], "cd".repeat(32));
        let net = find("golang.org/x/net");
        assert_eq!(
            (net.len(), &net[0]["licenseDeclared"], &net[0]["comment"]),
            (1, &json!("MIT"), &json!("go.sum: h1:a="))
        );
        let relations = document["relationships"].as_array().unwrap();
        let within = relations.iter().filter(|relation| relation["relatedSpdxElement"] == net[0]["SPDXID"]);
        assert_eq!(within.count(), 2);
        assert_eq!(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        let known = |id: &Value| id == "SPDXRef-DOCUMENT" || packages.iter().any(|package| package["SPDXID"] == *id);
        assert!(
            relations
                .iter()
                .all(|relation| known(&relation["spdxElementId"]) && known(&relation["relatedSpdxElement"]))
        );
    }

    #[test]
    fn equal_parts_give_equal_bytes_and_other_parts_another_namespace() {
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
