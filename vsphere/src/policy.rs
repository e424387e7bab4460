//! Storage policies by their names. Settings of VMs and disks have only their identifiers.
//!
//! Source: VMware Storage Policy API reference, and `ProfileIDByName` in `pbm/client.go` of govmomi, which sends the
//! same request.

use crate::client::Client;
use crate::error::Result;
use crate::method::{PBM_QUERY_PROFILE, PBM_RETRIEVE_CONTENT, PBM_RETRIEVE_SERVICE_CONTENT};
use crate::reference::MoRef;
use crate::soap::Element;

/// A storage policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoragePolicy {
    /// The identifier in settings of VMs and disks.
    pub id: String,
    /// Its name, as vSphere Client shows it.
    pub name: String,
}

impl Client {
    /// All storage policies for VMs and disks that the account can see: those of the category `REQUIREMENT`. The others
    /// belong to the storage itself. Reading them requires `StorageProfile.View` at the root of the inventory.
    pub async fn storage_policies(&self) -> Result<Vec<StoragePolicy>> {
        // The only object of this endpoint with a fixed identifier.
        let instance = MoRef::new("PbmServiceInstance", "ServiceInstance");
        let content = self.call(PBM_RETRIEVE_SERVICE_CONTENT, &instance, Vec::new()).await?;
        let manager = content.need("returnval")?.need_reference("profileManager")?;
        let of_storage = Element::new("resourceType").with([Element::text("resourceType", "STORAGE")]);
        let category = Element::text("profileCategory", "REQUIREMENT");
        let found = self.call(PBM_QUERY_PROFILE, &manager, vec![of_storage, category]).await?;
        let mut ids = Vec::new();
        for id in found.all("returnval") {
            ids.push(Element::new("profileIds").with([Element::text("uniqueId", id.need("uniqueId")?.value())]));
        }
        // A request for no policies is rejected.
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.call(PBM_RETRIEVE_CONTENT, &manager, ids).await?;
        let mut policies = Vec::new();
        for policy in found.all("returnval") {
            let id = policy.need("profileId")?.need("uniqueId")?.value().to_owned();
            policies.push(StoragePolicy { id, name: policy.need("name")?.value().to_owned() });
        }
        Ok(policies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, reference};
    use crate::treatment::Outcome;

    /// A vCenter with two policies.
    async fn fake() -> Fake {
        let fake = Fake::start().await;
        let manager = reference("profileManager", "PbmProfileProfileManager", "ProfileManager");
        fake.says("PbmRetrieveServiceContent", &format!("<returnval>{manager}</returnval>"));
        let id = |id: &str| format!("<returnval><uniqueId>{id}</uniqueId></returnval>");
        fake.says("PbmQueryProfile", &[id("p-1"), id("p-2")].concat());
        let policy = |id: &str, name: &str| {
            format!("<returnval><profileId><uniqueId>{id}</uniqueId></profileId><name>{name}</name></returnval>")
        };
        fake.says("PbmRetrieveContent", &[policy("p-1", "gold"), policy("p-2", "A &amp; B")].concat());
        fake
    }

    fn policy(id: &str, name: &str) -> StoragePolicy {
        StoragePolicy { id: id.to_owned(), name: name.to_owned() }
    }

    #[tokio::test]
    async fn policies_are_read_with_the_vim_session() {
        let fake = fake().await;
        let client = fake.client().await;
        assert_eq!(client.storage_policies().await.unwrap(), [policy("p-1", "gold"), policy("p-2", "A & B")]);
        let calls = ["PbmRetrieveServiceContent", "PbmQueryProfile", "PbmRetrieveContent"];
        for method in calls {
            let [asked] = &fake.asked(method)[..] else { panic!("{method} is asked once") };
            assert!(asked.head.starts_with("post /pbm http/1.1\r\n"), "{}", asked.head);
            assert!(asked.head.contains("soapaction: urn:pbm/\r\n"), "{}", asked.head);
            let header = "<soapenv:Header><vcSessionCookie>s1</vcSessionCookie></soapenv:Header><soapenv:Body>";
            assert!(asked.text().contains(header), "{}", asked.text());
        }
        let asked = calls.map(|method| fake.asked(method)[0].call());
        assert_eq!(
            asked[0].lines().collect::<Vec<_>>(),
            [
                "<PbmRetrieveServiceContent xmlns=\"urn:pbm\">",
                "<_this type=\"PbmServiceInstance\">ServiceInstance</_this>",
                "</PbmRetrieveServiceContent>",
            ]
        );
        assert_eq!(
            asked[1].lines().collect::<Vec<_>>(),
            [
                "<PbmQueryProfile xmlns=\"urn:pbm\">",
                "<_this type=\"PbmProfileProfileManager\">ProfileManager</_this>",
                "<resourceType>",
                "<resourceType>STORAGE</resourceType>",
                "</resourceType>",
                "<profileCategory>REQUIREMENT</profileCategory>",
                "</PbmQueryProfile>",
            ]
        );
        let [first, second] = ["p-1", "p-2"].map(|id| format!("<uniqueId>{id}</uniqueId>"));
        assert_eq!(
            asked[2].lines().collect::<Vec<_>>(),
            [
                "<PbmRetrieveContent xmlns=\"urn:pbm\">",
                "<_this type=\"PbmProfileProfileManager\">ProfileManager</_this>",
                "<profileIds>",
                &first,
                "</profileIds>",
                "<profileIds>",
                &second,
                "</profileIds>",
                "</PbmRetrieveContent>",
            ]
        );
    }

    #[tokio::test]
    async fn without_policies_no_content_is_requested() {
        let fake = fake().await;
        fake.says("PbmQueryProfile", "");
        assert!(fake.client().await.storage_policies().await.unwrap().is_empty());
        assert_eq!(fake.count("PbmRetrieveContent"), 0);
    }

    #[tokio::test]
    async fn ended_sessions_are_renewed_and_missing_privileges_denied() {
        for fault in ["NotAuthenticated", "PbmFaultInvalidLogin"] {
            let fake = fake().await;
            let client = fake.client().await;
            let found = "<returnval><uniqueId>p-1</uniqueId></returnval>";
            let ended = Reply::Fault(fault, String::new());
            fake.replies("PbmQueryProfile", [ended, Reply::Response(found.to_owned())]);
            client.storage_policies().await.unwrap();
            assert_eq!((fake.count("Login"), fake.count("PbmQueryProfile")), (2, 2), "{fault}");
            let again = fake.asked("PbmQueryProfile")[1].text();
            assert!(again.contains("<vcSessionCookie>s2</vcSessionCookie>"), "{again}");
        }
        let fake = fake().await;
        fake.replies("PbmQueryProfile", [Reply::Fault("PbmFaultNoPermission", String::new())]);
        assert_eq!(fake.client().await.storage_policies().await.unwrap_err().outcome(), Outcome::Denied);
    }
}
