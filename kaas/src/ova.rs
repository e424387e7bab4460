//! `kaas ova …`: looks into OVAs, checks them, and turns disks into VMDKs and back.

use std::fs;
use std::path::{Path, PathBuf};

use ::ova::archive::Archive;
use ::ova::signature::{PublicKey, Signature};
use ::ova::vmdk;
use anyhow::{Context, Result};
use clap::Subcommand;
use fleet::node::clean;
use serde_json::{Value, json};

use crate::output::{self, Output};

/// Commands on OVAs.
#[derive(Subcommand)]
pub enum Ova {
    /// Says what an OVA is: product, hardware, disks, properties, publisher. Verifies nothing.
    Inspect {
        /// The OVA.
        ova: PathBuf,
        /// How to say it.
        #[arg(long, default_value = "text")]
        output: Output,
    },
    /// Reads all of an OVA and checks it: files against the manifest, disks against the descriptor, the manifest against a publisher.
    ///
    /// Each disk is decoded, grain by grain: it has to be a streamOptimized VMDK that vSphere imports, whole, with
    /// the capacity and the size of data that the descriptor says. Ends with 0 when everything matches and with 1
    /// when anything does not.
    ///
    /// If the list of parts NAME.spdx.json is next to the OVA, its signature NAME.spdx.cert is checked too. With
    /// `--publisher` a list without a signature is refused.
    Verify {
        /// The OVA.
        ova: PathBuf,
        /// The publisher's certificate or public key in PEM: the OVA must be signed with it.
        #[arg(long, value_name = "FILE")]
        publisher: Option<PathBuf>,
    },
    /// Compresses a raw disk into a streamOptimized VMDK.
    Pack {
        /// The raw disk: a file whose size is a multiple of 64 KiB.
        raw: PathBuf,
        /// The VMDK to write; it appears when it is whole.
        vmdk: PathBuf,
    },
    /// Turns a streamOptimized VMDK back into a raw disk.
    Unpack {
        /// The VMDK.
        vmdk: PathBuf,
        /// The raw disk to write: a new, sparse file.
        raw: PathBuf,
    },
}

/// Runs one of the commands.
pub fn run(command: Ova) -> Result<()> {
    match command {
        Ova::Inspect { ova, output } => inspect(&ova, output),
        Ova::Verify { ova, publisher } => verify(&ova, publisher.as_deref()),
        Ova::Pack { raw, vmdk } => pack(&raw, &vmdk),
        Ova::Unpack { vmdk, raw } => unpack(&vmdk, &raw),
    }
}

fn inspect(path: &Path, output: Output) -> Result<()> {
    let facts = facts(&Archive::open(path)?)?;
    match output {
        Output::Json => output::json(&facts)?,
        Output::Text => output::result(&text(&facts))?,
    }
    Ok(())
}

/// What an archive says of itself.
fn facts(archive: &Archive) -> Result<Value> {
    let descriptor = archive.descriptor()?;
    let publisher = archive.signature()?.map(|signature| signature.claimed_key().fingerprint().to_string());
    let members = archive.members().iter().map(|member| json!({ "name": member.name, "size": member.size }));
    let disks = descriptor.disks.iter().map(
        |disk| json!({ "id": disk.id, "capacity": disk.capacity, "file": disk.file.as_ref().map(|file| &file.name) }),
    );
    let properties = descriptor.product.properties().map(|property| {
        json!({ "key": property.key, "label": property.label, "default": property.default, "password": property.password })
    });
    let profiles = descriptor.sizing.profiles().iter().map(|profile| {
        json!({
            "id": profile.id,
            "label": profile.label,
            "default": profile.default,
            "cpus": profile.size.cpus,
            "memory_mib": profile.size.memory_mib,
            "disks": descriptor.disks_of(&profile.id).map(|disk| &disk.id).collect::<Vec<_>>(),
        })
    });
    Ok(json!({
        "name": descriptor.name,
        "product": descriptor.product.name,
        "version": descriptor.product.version,
        "claimed_publisher": publisher,
        "members": members.collect::<Vec<_>>(),
        "disks": disks.collect::<Vec<_>>(),
        "profiles": profiles.collect::<Vec<_>>(),
        "properties": properties.collect::<Vec<_>>(),
    }))
}

fn text(facts: &Value) -> String {
    let word = |value: &Value| clean(value.as_str().unwrap_or_default());
    let rows = |key: &str| facts[key].as_array().cloned().unwrap_or_default();
    let mib = |value: &Value| value.as_u64().unwrap_or_default() >> 20;
    let mut text = format!("{} {} ({})\n", word(&facts["product"]), word(&facts["version"]), word(&facts["name"]));
    text += &match facts["claimed_publisher"].as_str() {
        Some(fingerprint) => format!("says that the key {fingerprint} signed it; `kaas ova verify` checks that\n"),
        None => "not signed: a development image\n".to_owned(),
    };
    for member in rows("members") {
        text += &format!("member    {:>10} bytes  {}\n", member["size"], word(&member["name"]));
    }
    for disk in rows("disks") {
        let content = disk["file"].as_str().unwrap_or("empty");
        text += &format!("disk      {:>10} MiB    {}, {content}\n", mib(&disk["capacity"]), word(&disk["id"]));
    }
    for profile in rows("profiles") {
        let disks = profile["disks"].as_array().into_iter().flatten().map(word).collect::<Vec<_>>().join(", ");
        let number = |key: &str| profile[key].as_u64().unwrap_or_default();
        let (id, cpus, memory) = (word(&profile["id"]), number("cpus"), number("memory_mib"));
        let chosen = if profile["default"] == true { ", the default" } else { "" };
        text += &format!("profile   {id:24} {cpus:>3} vCPU {memory:>7} MiB  {disks}{chosen}\n");
    }
    for property in rows("properties") {
        text += &format!("property  {:24} {}\n", word(&property["key"]), word(&property["label"]));
    }
    text
}

fn verify(path: &Path, publisher: Option<&Path>) -> Result<()> {
    let archive = Archive::open(path)?;
    let trusted = publisher
        .map(|file| {
            let pem = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            PublicKey::from_pem(&pem).with_context(|| format!("using {} as the publisher's key", file.display()))
        })
        .transpose()?;
    archive.verify(&mut |_| {})?;
    match trusted {
        None => say!("{}: whole, with its disks; who made it was not checked", path.display()),
        Some(key) => {
            archive.verify_signature(&key)?;
            let sbom = verify_sbom(path, &key)?;
            say!("{}: whole, with its disks, and signed with the key {}", path.display(), key.fingerprint());
            if let Some(sbom) = sbom {
                say!("{}: signed with the same key", sbom.display());
            }
        }
    }
    Ok(())
}

/// Checks that a publisher signed the list of parts next to an OVA, and returns its path. None if there is no list.
fn verify_sbom(ova: &Path, key: &PublicKey) -> Result<Option<PathBuf>> {
    let (file, certificate) = ::ova::archive::sbom_of(ova);
    let document = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("reading {}", file.display()))?,
    };
    let refused =
        || format!("the list of parts {} is not signed by the publisher: fetch it again, or remove it", file.display());
    let signed = fs::read_to_string(&certificate)
        .with_context(|| format!("reading {}", certificate.display()))
        .with_context(refused)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Signature::parse(&signed).and_then(|signature| signature.verify(&name, &document, key)).with_context(refused)?;
    Ok(Some(file))
}

fn pack(raw: &Path, vmdk: &Path) -> Result<()> {
    let written = vmdk::from_raw(raw, vmdk, &vmdk::Options::default(), &mut |_| {})?;
    say!("{}: {} of {} bytes hold data, {} written", vmdk.display(), written.populated, written.capacity, written.size);
    Ok(())
}

fn unpack(vmdk: &Path, raw: &Path) -> Result<()> {
    let contents = vmdk::to_raw(vmdk, raw, &mut |_| {}).with_context(|| format!("unpacking {}", vmdk.display()))?;
    say!("{}: {} of {} bytes hold data", raw.display(), contents.populated, contents.capacity);
    Ok(())
}
