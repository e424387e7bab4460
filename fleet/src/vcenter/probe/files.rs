//! Rows about the account, the datastore and its files.

use vsphere::{DatastorePath, MoRef, Need, On};

use super::Probe;
use super::answer::{Failed, Tried, fault, judged, word};
use crate::vcenter::trouble::Asking;

/// A file's bytes.
const BYTES: &[u8] = b"kaas provider probe\n";

/// What must be listed of the files `a.vmx` and `b.vmtx`, by a pattern.
const LISTED: [&str; 2] = ["a.vmx", "b.vmtx"];

impl Probe<'_> {
    pub(super) async fn role(&mut self) -> Tried {
        let places = &self.hypervisor.places;
        let need = |on, object: &MoRef| Need { on, object: object.clone(), name: String::new() };
        let mut needs = vec![need(On::Folder, &places.folders[0].0), need(On::Pool, &places.pool)];
        needs.push(need(On::Datastore, self.datastore()));
        needs.extend(places.networks.iter().map(|(network, _)| need(On::Network, network)));
        let missing = self.client.missing_privileges(&needs).await?;
        let ids: Vec<&str> = missing.iter().map(|missing| missing.privilege.id).collect();
        judged(
            ids.is_empty(),
            if ids.is_empty() { "none is missing".to_owned() } else { format!("missing: {}", ids.join(", ")) },
        )
    }

    pub(super) async fn folder_is_readable(&mut self) -> Tried {
        let folder = &self.hypervisor.places.folders[0].0;
        let seen = self.client.list(folder, &["VirtualMachine"], false, &["name", "config.changeVersion"]).await?;
        let hidden = seen.iter().filter(|vm| vm.get("config.changeVersion").is_none()).count();
        judged(hidden == 0, format!("{} VMs, {hidden} without settings", seen.len()))
    }

    pub(super) async fn free_space(&mut self) -> Tried {
        let datastore = self.client.datastore(self.datastore()).await?;
        let (free, of) = (datastore.free >> 30, datastore.capacity >> 30);
        judged(datastore.takes_vms() && free >= 4, format!("{free} of {of} GiB are free"))
    }

    pub(super) async fn datastore_kind(&mut self) -> Tried {
        // Of NFS a copy may be thin and locks are files: what else is known is documented as VMFS is.
        let kind = self.client.datastore(self.datastore()).await?.kind;
        judged(!kind.to_ascii_lowercase().starts_with("nfs"), word(&kind))
    }

    pub(super) async fn directory_once(&mut self) -> Tried {
        let asking = Asking(self.permit);
        let made = self.client.changes(&asking);
        fault(
            made.make_directory(&self.setup.directory, &self.hypervisor.places.datacenter).await,
            &["FileAlreadyExists"],
        )
    }

    pub(super) async fn directory_parent(&mut self) -> Tried {
        let path = self.unused("missing").join("below");
        let asking = Asking(self.permit);
        let made = self.client.changes(&asking);
        fault(made.make_directory(&path, &self.hypervisor.places.datacenter).await, &["FileNotFound"])
    }

    pub(super) async fn file_plain(&mut self) -> Tried {
        self.file_comes_back(self.unused("file")).await
    }

    pub(super) async fn file_names(&mut self) -> Tried {
        self.file_comes_back(self.unused("50% of a file +%41")).await
    }

    /// Writes a file as journals are written, without a content type, reads it, and finds it by the datastore's browser.
    async fn file_comes_back(&self, path: DatastorePath) -> Tried {
        let datacenter = &self.setup.site.datacenter;
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        if let Err(error) = changes.write_file(&path, datacenter, BYTES.to_vec()).await {
            return if error.lacks_privilege() { Err(error.into()) } else { judged(false, "it is not taken") };
        }
        let read = self.client.read_file(&path, datacenter, BYTES.len()).await;
        let name = path.path.rsplit('/').next().unwrap_or_default();
        let is_listed = self.names("*").await?.iter().any(|listed| listed == name);
        let is_same = read.is_ok_and(|read| read == BYTES);
        let words = |is: bool| if is { "yes" } else { "no" };
        judged(is_same && is_listed, format!("read back: {}, listed by its name: {}", words(is_same), words(is_listed)))
    }

    async fn names(&self, pattern: &str) -> vsphere::Result<Vec<String>> {
        let files = self.client.files(self.datastore(), &self.setup.directory, pattern).await?;
        Ok(files.into_iter().map(|file| file.name).collect())
    }

    pub(super) async fn file_missing(&mut self) -> Tried {
        match self.client.read_file(&self.unused("missing"), &self.setup.site.datacenter, 1).await {
            Err(error) if error.outcome() == vsphere::Outcome::NotFound => judged(true, "HTTP status 404"),
            Err(_) => judged(false, "another status"),
            Ok(_) => judged(false, "a file"),
        }
    }

    pub(super) async fn search_all(&mut self) -> Tried {
        for name in LISTED {
            let path = self.setup.directory.join(name);
            let asking = Asking(self.permit);
            self.client.changes(&asking).write_file(&path, &self.setup.site.datacenter, BYTES.to_vec()).await?;
        }
        self.search("*", &LISTED).await
    }

    pub(super) async fn search_middle(&mut self) -> Tried {
        self.search("*.vm*x", &LISTED).await
    }

    pub(super) async fn search_one(&mut self) -> Tried {
        self.search("?.vmx", &LISTED[..1]).await
    }

    async fn search(&self, pattern: &str, wanted: &[&str]) -> Tried {
        let found = self.names(pattern).await?;
        let count = wanted.iter().filter(|wanted| found.iter().any(|found| found.as_str() == **wanted)).count();
        judged(count == wanted.len(), format!("{count} of the {} files are found", wanted.len()))
    }

    pub(super) async fn file_tasks(&mut self) -> Tried {
        let path = self.setup.directory.join(LISTED[0]);
        self.client.changes(&Asking(self.permit)).delete_file(&path, &self.hypervisor.places.datacenter).await?;
        self.lists_task("FileManager.").await
    }

    pub(super) async fn disk_tasks(&mut self) -> Tried {
        self.lists_task("VirtualDiskManager.").await
    }

    /// Whether vCenter lists a task of this account whose name begins so.
    async fn lists_task(&self, begins: &str) -> Tried {
        let own = self.client.user_name().await;
        let tasks = self.client.details_of_recent_tasks().await?;
        let mut of_it = tasks.iter().filter(|task| task.what.starts_with(begins) && task.by.eq_ignore_ascii_case(&own));
        match of_it.next() {
            Some(task) => {
                let on = task.on.as_deref().map_or("no object".to_owned(), |kind| format!("a {}", word(kind)));
                judged(true, format!("listed as {}, on {on}", word(&task.what)))
            }
            None => judged(false, "not listed"),
        }
    }

    pub(super) async fn drs(&mut self) -> Tried {
        let Some(cluster) = self.hypervisor.cluster_over(&self.hypervisor.places.pool).await? else {
            return Err(Failed::NotTried("the resource pool is of a host without a cluster".to_owned()));
        };
        let seen = self.client.look(&cluster, &["configurationEx"]).await?;
        let drs = seen.need("configurationEx")?.child("drsConfig");
        let text = |name: &str| word(drs.and_then(|drs| drs.text_of(name)).unwrap_or("notSaid"));
        let (enabled, behavior) = (text("enabled"), text("defaultVmBehavior"));
        judged(enabled == "true" && behavior != "manual", format!("enabled: {enabled}, {behavior}"))
    }
}
