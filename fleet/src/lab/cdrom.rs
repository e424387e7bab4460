//! The CD-ROM through which a VM gets its OVF environment: an ISO 9660 image
//! with `ovf-env.xml` at its root (DSP0243 1.1.0, section 11.2).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::host::{program, run};

/// Writes the image; one that is there is replaced.
///
/// # Errors
/// When xorriso is missing or fails.
pub fn burn(environment: &[u8], iso: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("making the CD-ROM")?;
    fs::write(folder.path().join("ovf-env.xml"), environment)?;
    if iso.exists() {
        fs::remove_file(iso)?;
    }
    let mut xorriso = program("xorriso", ["-as", "mkisofs", "-quiet", "-J", "-R", "-V", "OVF ENV", "-o"]);
    run(xorriso.arg(iso).arg(folder.path())).context("making the CD-ROM with the OVF environment")?;
    Ok(())
}

/// The environment that vCenter would hand to a VM with these properties.
///
/// # Errors
/// When a value cannot stand in XML.
pub fn environment(properties: &BTreeMap<String, String>, mac: &str) -> anyhow::Result<String> {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Environment xmlns=\"http://schemas.dmtf.org/ovf/environment/1\" \
         xmlns:oe=\"http://schemas.dmtf.org/ovf/environment/1\" \
         xmlns:ve=\"http://www.vmware.com/schema/ovfenv\" oe:id=\"\">\n  <PropertySection>\n",
    );
    for (key, value) in properties {
        text.push_str(&format!("    <Property oe:key=\"{}\" oe:value=\"{}\"/>\n", escape(key), escape(value)));
    }
    text.push_str(&format!(
        "  </PropertySection>\n  <ve:EthernetAdapterSection>\n    \
         <ve:Adapter ve:mac=\"{mac}\" ve:network=\"VM Network\" ve:unitNumber=\"7\"/>\n  \
         </ve:EthernetAdapterSection>\n</Environment>\n"
    ));
    Ok(text)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\n', "&#10;")
}
