//! Finds the OVA for the VMs of a lab.

use std::path::{Path, PathBuf};

use anyhow::Context;
use contract::image;
use fleet::find_ova_of;
use serde::Deserialize;

use super::{Lab, records};

impl Lab {
    /// As [`find_ova_of`], for the appliance of this lab's VMs: a tenant's appliance is not its control cluster's.
    pub fn find_ova(&self, path: &Path) -> anyhow::Result<PathBuf> {
        find_ova_of(path, &self.appliance()?)
    }

    /// Name of the appliance that the lab's VMs are made of.
    fn appliance(&self) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let image = self.record.source.tree().join(image::PATH.trim_start_matches('/'));
        let named: Named = records::load(&image).context("looking what the lab was made from")?;
        Ok(named.name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::super::fixture;
    use super::*;

    fn name(path: PathBuf) -> String {
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn a_lab_finds_the_ova_of_its_appliance() {
        let directory = tempfile::tempdir().unwrap();
        let build = directory.path().join("build");
        fs::create_dir(&build).unwrap();
        let ovas = ["kaas-control-plane-0.2.0.ova", "kaas-tenant-0.2.0.ova"];
        ovas.iter().for_each(|ova| fs::write(build.join(ova), "").unwrap());
        for (appliance, ova) in ["kaas-control-plane", "kaas-tenant"].into_iter().zip(ovas) {
            let source = fixture::source(&directory.path().join(appliance));
            let image = source.tree().join(image::PATH.trim_start_matches('/'));
            records::save(&image, &json!({"name": appliance})).unwrap();
            let lab = fixture::lab(&directory.path().join("state"), 1, source);
            assert_eq!(name(lab.find_ova(&build).unwrap()), ova);
        }
    }
}
