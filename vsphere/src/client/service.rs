//! A server's description of itself.

use crate::error::{Error, Result};
use crate::reference::MoRef;
use crate::soap::Element;

/// The kind and version of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Name and version, such as `VMware vCenter Server 8.0.3 build-24022515`.
    pub full_name: String,
    /// `VirtualCenter`, or `HostAgent` for a single host.
    pub api_type: String,
    /// Version of the API, such as `8.0.3.0`.
    pub api_version: String,
    /// The UUID that identifies this vCenter.
    pub instance_uuid: String,
}

/// The managers of a vCenter, by the names of `ServiceContent`.
#[derive(Clone, Debug)]
pub struct Service {
    /// The kind and version of the server.
    pub about: About,
    content: Element,
}

impl Service {
    /// Reads `ServiceContent`. Fails if it is not that of a vCenter of version 7.0 or later.
    pub(super) fn read(content: &Element, server: &str) -> Result<Self> {
        let said = content.need("about")?;
        let text = |name: &str| said.text_of(name).unwrap_or_default().to_owned();
        let about = About {
            full_name: text("fullName"),
            api_type: text("apiType"),
            api_version: text("apiVersion"),
            instance_uuid: text("instanceUuid"),
        };
        let attempt = || format!("connecting to {server}");
        if about.api_type != "VirtualCenter" {
            return Err(Error::refused(
                attempt(),
                format!(
                    "it is {} (apiType {}), and not a vCenter: a host by itself has no store of OVF properties, no clones and no \
                 rules; name the vCenter that manages it",
                    about.full_name, about.api_type
                ),
            ));
        }
        let major = about.api_version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        match major {
            Some(7..) => Ok(Self { about, content: content.clone() }),
            _ => Err(Error::refused(
                attempt(),
                format!("it is {} with API {:?}; 7.0 or later is needed", about.full_name, about.api_version),
            )),
        }
    }

    /// The root of the inventory.
    pub fn root_folder(&self) -> Result<MoRef> {
        self.manager("rootFolder")
    }

    /// A manager by its name, such as `fileManager`.
    pub(crate) fn manager(&self, name: &str) -> Result<MoRef> {
        Ok(self.content.need_reference(name)?)
    }
}
