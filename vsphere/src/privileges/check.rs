//! Checks the privileges of the account.

use std::fmt;

use crate::client::Client;
use crate::error::Result;
use crate::method::HAS_USER_PRIVILEGE_ON_ENTITIES;
use crate::reference::MoRef;
use crate::soap::Element;

use super::table::{On, PRIVILEGES, Privilege};

/// An object that the account needs privileges on.
#[derive(Clone, Debug)]
pub struct Need {
    /// Its role in the table.
    pub on: On,
    /// The object.
    pub object: MoRef,
    /// The users' name of the object.
    pub name: String,
}

/// A privilege that the account lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The privilege.
    pub privilege: Privilege,
    /// The users' name of the object.
    pub on: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, for {}", self.privilege.id, self.on, self.privilege.purpose)
    }
}

impl Client {
    /// All privileges of the table that the account lacks on these objects. One that is not in vCenter's answer counts
    /// as missing.
    pub async fn missing_privileges(&self, needs: &[Need]) -> Result<Vec<Missing>> {
        let manager = self.service().manager("authorizationManager")?;
        let user = self.user_name().await;
        let mut missing = Vec::new();
        for need in needs {
            let wanted: Vec<&Privilege> = PRIVILEGES.iter().filter(|privilege| privilege.on == need.on).collect();
            let head = [Element::reference("entities", &need.object), Element::text("userName", &user)];
            let ids = wanted.iter().map(|privilege| Element::text("privId", privilege.id));
            let response =
                self.call(HAS_USER_PRIVILEGE_ON_ENTITIES, &manager, head.into_iter().chain(ids).collect()).await?;
            let said =
                response.all("returnval").filter(|said| said.reference_of("entity").as_ref() == Some(&need.object));
            let said: Vec<&Element> = said.flat_map(|said| said.all("privAvailability")).collect();
            let is_granted =
                |id: &str| said.iter().any(|said| said.text_of("privId") == Some(id) && said.flag("isGranted"));
            let not_granted = wanted.into_iter().filter(|privilege| !is_granted(privilege.id));
            missing.extend(not_granted.map(|privilege| Missing { privilege: *privilege, on: need.name.clone() }));
        }
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, reference};

    #[tokio::test]
    async fn missing_privileges_are_named_with_their_purpose() {
        let (fake, client) = Fake::connected().await;
        let said = |id: &str, granted: bool| {
            format!("<privAvailability><privId>{id}</privId><isGranted>{granted}</isGranted></privAvailability>")
        };
        // The answer leaves out the third.
        let pool = reference("entity", "ResourcePool", "resgroup-1");
        let all = [said("Resource.AssignVMToPool", true), said("VApp.Import", false)].concat();
        fake.says("HasUserPrivilegeOnEntities", &format!("<returnval>{pool}{all}</returnval>"));
        let need =
            |on, kind: &str, id: &str, name: &str| Need { on, object: MoRef::new(kind, id), name: name.to_owned() };
        let needs = [
            need(On::Pool, "ResourcePool", "resgroup-1", "the resource pool lab"),
            need(On::Network, "Network", "network-1", "the network VM Network"),
        ];
        let missing: Vec<String> =
            client.missing_privileges(&needs).await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            missing,
            [
                "VApp.Import on the resource pool lab, for importing VMs",
                "Network.Assign on the network VM Network, for putting VMs onto networks",
            ]
        );
        insta::assert_snapshot!(fake.asked("HasUserPrivilegeOnEntities")[0].call());
    }
}
