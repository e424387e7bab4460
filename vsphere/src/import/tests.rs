//! Imports, with scripted answers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ova::Sha256;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::changes::Sent;
use crate::client::Client;
use crate::fake::{Fake, Permits, Reply, TASK, reference, succeed, success, updates};
use crate::guard::{Fence, Unguarded};
use crate::treatment::Outcome;

/// Longer than the pieces that wait to be sent.
const DISK: usize = (1 << 20) + 12_345;

const SPEC: &str = r#"<importSpec xsi:type="VirtualMachineImportSpec"><configSpec><name>node-1</name><numCPUs>2</numCPUs><extraConfig xsi:type="OptionValue"><key>stamp</key><value xsi:type="xsd:string">old</value></extraConfig><extraConfig xsi:type="OptionValue"><key>kept</key><value xsi:type="xsd:string">kept</value></extraConfig><vAppConfig xsi:type="VmConfigSpec"><ofALaterVersion>kept</ofALaterVersion></vAppConfig></configSpec></importSpec>"#;

fn disk() -> Vec<u8> {
    (0..DISK).map(|at| (at % 251) as u8).collect()
}

/// An OVA. `manifest` may change its manifest.
fn ova(manifest: impl FnOnce(String) -> String) -> (TempDir, PathBuf) {
    let (descriptor, disk) = ("<Envelope/>", disk());
    let said = format!(
        "SHA256(a.ovf)= {}\nSHA256(a-disk1.vmdk)= {}\nSHA256(a-cd.iso)= {}\n",
        Sha256::of(descriptor.as_bytes()),
        Sha256::of(&disk),
        Sha256::of(b"iso")
    );
    let said = manifest(said);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.ova");
    let mut tar = tar::Builder::new(std::fs::File::create(&path).unwrap());
    for (name, bytes) in
        [("a.ovf", descriptor.as_bytes()), ("a.mf", said.as_bytes()), ("a-disk1.vmdk", &disk), ("a-cd.iso", b"iso")]
    {
        if bytes.is_empty() {
            continue;
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        tar.append_data(&mut header, name, bytes).unwrap();
    }
    tar.finish().unwrap();
    (directory, path)
}

fn lease(address: &str, state: &str) -> String {
    let url = |device: &str, path: &str| {
        format!(
            "<deviceUrl><key>k</key><importKey>/{device}</importKey><url>{address}{path}</url><sslThumbprint></sslThumbprint></deviceUrl>"
        )
    };
    let info = [
        reference("lease", "HttpNfcLease", "lease-1"),
        reference("entity", "VirtualMachine", "vm-9"),
        url("iso", "/nfc/cd"),
        url("disk", "/nfc/disk"),
    ]
    .concat();
    updates("1", "HttpNfcLease", "lease-1", &[("state", state), ("info", &info)])
}

/// A vCenter that accepts imports.
async fn vcenter() -> (Fake, Client) {
    let (fake, client) = Fake::connected().await;
    let item = |device: &str, path: &str, create: bool| {
        format!("<fileItem><deviceId>/{device}</deviceId><path>{path}</path><create>{create}</create></fileItem>")
    };
    let warning = "<warning><fault xsi:type=\"OvfUnsupportedAttribute\"/><localizedMessage>Left out.</localizedMessage></warning>";
    let all = [SPEC, &item("disk", "a-disk1.vmdk", false), &item("iso", "a-cd.iso", true), warning].concat();
    fake.says("CreateImportSpec", &format!("<returnval>{all}</returnval>"));
    fake.says("ImportVApp", &reference("returnval", "HttpNfcLease", "lease-1"));
    // The host of a lease may be "*", the server of the request.
    let starred = fake.address.replace("127.0.0.1", "*");
    fake.runs("none", [lease(&starred, "initializing"), lease(&starred, "ready")]);
    for method in ["HttpNfcLeaseProgress", "HttpNfcLeaseComplete", "HttpNfcLeaseAbort"] {
        fake.says(method, "");
    }
    for upload in ["POST /nfc/disk", "PUT /nfc/cd"] {
        fake.replies(upload, [Reply::Status(200, String::new())]);
    }
    (fake, client)
}

async fn import(client: &Client, path: &Path, guard: &dyn Fence) -> Result<Imported> {
    import_by(client.changes(guard), path).await
}

async fn import_by(changes: Changes<'_>, path: &Path) -> Result<Imported> {
    let (folder, pool, datastore) = (
        MoRef::new("Folder", "group-v3"),
        MoRef::new("ResourcePool", "resgroup-8"),
        MoRef::new("Datastore", "datastore-1"),
    );
    let properties = BTreeMap::from([("hostname".to_owned(), "node-1".to_owned())]);
    let config = ConfigSpec::new().extra("stamp", "new").processors(4);
    let networks = BTreeMap::from([("nodes".to_owned(), MoRef::new("Network", "network-1"))]);
    let import = Import {
        ova: path,
        name: "node-1",
        folder: &folder,
        pool: &pool,
        datastore: &datastore,
        host: None,
        networks,
        properties: &properties,
        option: Some("small"),
        config: &config,
        blank_disks: true,
    };
    changes.import(&import).await
}

fn count(fake: &Fake) -> [usize; 3] {
    ["ImportVApp", "HttpNfcLeaseComplete", "HttpNfcLeaseAbort"].map(|method| fake.count(method))
}

#[tokio::test]
async fn an_import_sends_the_ova_and_its_settings() {
    let (fake, client) = vcenter().await;
    let (_directory, path) = ova(|manifest| manifest);
    let imported = import(&client, &path, &Unguarded).await.unwrap();
    assert_eq!(imported.vm, MoRef::vm("vm-9"));
    assert_eq!(imported.warnings, ["OvfUnsupportedAttribute (Left out)"]);
    let sent = &fake.asked("POST /nfc/disk")[0];
    assert!(sent.body == disk(), "the bytes are those of the OVA");
    assert!(sent.head.contains("content-type: application/x-vnd.vmware-streamvmdk"), "{}", sent.head);
    assert!(sent.head.contains(&format!("content-length: {DISK}\r\n")), "{}", sent.head);
    let made = &fake.asked("PUT /nfc/cd")[0];
    assert_eq!((made.text().as_str(), made.head.contains("overwrite: t")), ("iso", true));
    assert_eq!(count(&fake), [1, 1, 0]);
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        fake.asked("CreateImportSpec")[0].call(),
        fake.asked("ImportVApp")[0].call()
    ));
}

#[tokio::test]
async fn changed_ovas_never_arrive_whole() {
    let digest = Sha256::of(&disk()).to_string();
    for (name, change, words, imports) in [
        ("disk", digest.as_str(), "a-disk1.vmdk", 1),
        ("descriptor", &Sha256::of(b"<Envelope/>").to_string(), "a.ovf is not what the manifest says", 0),
        ("unlisted", "SHA256(a-cd.iso)", "does not list a-cd.iso", 0),
    ] {
        let (fake, client) = vcenter().await;
        let wrong = if change.starts_with("SHA") { "SHA256(b-cd.iso)".to_owned() } else { "0".repeat(64) };
        let (_directory, path) = ova(|manifest| manifest.replace(change, &wrong));
        let error = import(&client, &path, &Unguarded).await.unwrap_err();
        assert_eq!((error.outcome(), error.to_string().contains(words)), (Outcome::Refused, true), "{name}: {error}");
        assert_eq!(count(&fake), [imports, 0, imports], "{name}");
        assert_eq!(fake.count("POST /nfc/disk"), 0, "{name}: not all bytes came");
    }
    let (fake, client) = vcenter().await;
    let (_directory, path) = ova(|_| String::new());
    let error = import(&client, &path, &Unguarded).await.unwrap_err();
    assert!(error.to_string().contains("no manifest"), "{error}");
    assert_eq!(count(&fake), [0; 3]);
}

#[tokio::test]
async fn rejected_descriptors_start_no_import() {
    let (fake, client) = vcenter().await;
    let (_directory, path) = ova(|manifest| manifest);
    let error = "<error><fault xsi:type=\"OvfUnsupportedElement\"/><localizedMessage>No.</localizedMessage></error>";
    fake.says("CreateImportSpec", &format!("<returnval>{error}</returnval>"));
    let refused = import(&client, &path, &Unguarded).await.unwrap_err();
    assert_eq!((refused.outcome(), refused.is_fault("OvfUnsupportedElement")), (Outcome::Refused, true));
    let vapp = "<importSpec xsi:type=\"VirtualAppImportSpec\"><vAppConfigSpec/></importSpec>";
    fake.says("CreateImportSpec", &format!("<returnval>{vapp}</returnval>"));
    let refused = import(&client, &path, &Unguarded).await.unwrap_err();
    assert!(refused.to_string().contains("not of one VM"), "{refused}");
    assert_eq!(count(&fake), [0; 3]);
}

#[tokio::test]
async fn failed_hosts_and_lost_leases_abort_the_import() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    fake.replies("POST /nfc/disk", [Reply::Status(500, String::new())]);
    let error = import(&client, &path, &Unguarded).await.unwrap_err();
    assert_eq!((error.outcome(), error.to_string().contains("HTTP status 500")), (Outcome::Transient, true), "{error}");
    assert_eq!(count(&fake), [1, 0, 1]);

    let (fake, client) = vcenter().await;
    fake.replies("POST /nfc/disk", [Reply::Cut]);
    assert_eq!(import(&client, &path, &Unguarded).await.unwrap_err().outcome(), Outcome::Transient);
    assert_eq!(count(&fake), [1, 0, 1]);

    // The host does not end the upload, and vCenter has ended the lease meanwhile.
    let (fake, client) = vcenter().await;
    fake.replies("POST /nfc/disk", [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    fake.replies(
        "HttpNfcLeaseProgress",
        [Reply::Response(String::new()), Reply::Cut, Reply::Fault("InvalidState", String::new())],
    );
    let error = import(&client, &path, &Unguarded).await.unwrap_err();
    assert!(error.is_fault("InvalidState"), "{error}");
    assert_eq!((count(&fake), fake.count("HttpNfcLeaseProgress")), ([1, 0, 1], 3));

    let (fake, client) = vcenter().await;
    let failed =
        [("state", "error"), ("error", "<fault xsi:type=\"NoDiskSpace\"/><localizedMessage>Full.</localizedMessage>")];
    fake.replies("WaitForUpdatesEx", [Reply::Response(updates("1", "HttpNfcLease", "lease-1", &failed))]);
    let error = import(&client, &path, &Unguarded).await.unwrap_err();
    assert_eq!((error.outcome(), count(&fake)), (Outcome::Transient, [1, 0, 1]));
}

#[tokio::test]
async fn an_upload_without_progress_ends() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, _) = vcenter().await;
    let client = fake.client_with(|settings| settings.stall = Duration::from_millis(50)).await;
    fake.replies("POST /nfc/disk", [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    let error = import(&client, &path, &Unguarded).await.unwrap_err();
    assert!(error.to_string().contains("nothing was taken for"), "{error}");
    assert_eq!(count(&fake), [1, 0, 1]);
}

#[tokio::test]
async fn lost_answers_leave_an_import_in_doubt() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    fake.replies("ImportVApp", [Reply::Cut]);
    assert_eq!(import(&client, &path, &Unguarded).await.unwrap_err().outcome(), Outcome::InDoubt);
    assert_eq!(count(&fake), [1, 0, 0]);
    // vCenter still works on the end during the first look.
    for (end, is_done) in [(Some("done"), true), (Some("error"), false), (None, false)] {
        let (fake, client) = vcenter().await;
        fake.replies("HttpNfcLeaseComplete", [Reply::Cut]);
        let ready = || Reply::Response(lease(&fake.address, "ready"));
        let gone = || Reply::Fault("ManagedObjectNotFound", String::new());
        let ends =
            end.map_or_else(gone, |end| Reply::Response(updates("2", "HttpNfcLease", "lease-1", &[("state", end)])));
        fake.replies("WaitForUpdatesEx", [ready(), ready(), Reply::Cut, ends]);
        fake.replies("RetrievePropertiesEx", [Reply::Cut, Reply::Cut, Reply::Cut, gone()]);
        match import(&client, &path, &Permits(AtomicUsize::new(100))).await {
            Ok(imported) => assert!(is_done && imported.vm == MoRef::vm("vm-9"), "{end:?}"),
            Err(error) => assert!(!is_done && error.outcome() == Outcome::InDoubt, "{end:?}: {error}"),
        }
        assert_eq!((count(&fake), fake.count("POST /nfc/disk")), ([1, 1, 0], 1));
    }
}

#[tokio::test]
async fn a_completion_without_effect_is_repeated() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    // vCenter accepts no login for a moment. In this fake, leases outlive their sessions. A real vCenter ends them:
    // there, calls are repeated that could not be sent, or were rejected for now.
    let ended = || Reply::Fault("NotAuthenticated", String::new());
    fake.replies("HttpNfcLeaseComplete", [ended(), ended(), Reply::Response(String::new())]);
    let login = "<returnval><key>k</key><userName>LAB\\deployer</userName></returnval>";
    fake.replies("Login", [Reply::Cut, Reply::Response(login.to_owned())]);
    let imported = import(&client, &path, &Permits(AtomicUsize::new(100))).await.unwrap();
    assert_eq!(imported.vm, MoRef::vm("vm-9"));
    assert_eq!((count(&fake), fake.count("POST /nfc/disk")), ([1, 3, 0], 1));
    // After the patience, the incomplete VM is removed at once.
    let (fake, _) = vcenter().await;
    let client = fake.client_with(|settings| settings.patience = Duration::ZERO).await;
    fake.replies("HttpNfcLeaseComplete", [Reply::Fault("ResourceInUse", String::new())]);
    let error = import(&client, &path, &Unguarded).await.unwrap_err();
    assert_eq!((error.outcome(), count(&fake)), (Outcome::Transient, [1, 1, 1]), "{error}");
}

#[tokio::test]
async fn a_stopped_upload_sends_no_abort() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    fake.replies("POST /nfc/disk", [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    let error = import(&client, &path, &Permits(AtomicUsize::new(3))).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Stopped);
    client.log_out().await.unwrap();
    assert_eq!(count(&fake), [1, 0, 0]);
}

#[tokio::test]
async fn guards_are_asked_while_vcenter_is_silent() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    for method in ["POST /nfc/disk", "HttpNfcLeaseProgress"] {
        fake.replies(method, [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    }
    let guard = Permits(AtomicUsize::new(6));
    let imported = tokio::time::timeout(client.settings().look_limit, import(&client, &path, &guard)).await;
    let error = imported.expect("long before a look is given up").unwrap_err();
    assert_eq!((error.outcome(), count(&fake)), (Outcome::Stopped, [1, 0, 0]), "{error}");
}

#[tokio::test]
async fn guards_are_asked_before_each_file() {
    let (_directory, path) = ova(|manifest| manifest);
    for (permitted, files) in [(1, [0, 0]), (2, [1, 0])] {
        let (fake, _) = vcenter().await;
        let client = fake.client_with(|settings| settings.lease_interval = Duration::from_secs(3600)).await;
        let error = import(&client, &path, &Permits(AtomicUsize::new(permitted))).await.unwrap_err();
        assert_eq!((error.outcome(), count(&fake)), (Outcome::Stopped, [1, 0, 0]), "{error}");
        let begun = |method: &str| fake.order().iter().filter(|asked| asked.starts_with(method)).count();
        assert_eq!(["POST /nfc/disk", "PUT /nfc/cd"].map(begun), files, "{permitted}");
    }
}

#[tokio::test]
async fn imports_of_dropped_callers_are_aborted() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    fake.replies("POST /nfc/disk", [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    let importing = tokio::spawn(async move { import(&client, &path, &Unguarded).await });
    // Then all pieces are sent, and the end is not reached.
    let is_told =
        |fake: &Fake| fake.asked("HttpNfcLeaseProgress").iter().any(|told| told.call().contains("<percent>99<"));
    let mut told = 0;
    while !is_told(&fake) {
        told += 1;
        fake.arrived("HttpNfcLeaseProgress", told).await;
    }
    importing.abort();
    assert!(importing.await.unwrap_err().is_cancelled());
    fake.arrived("HttpNfcLeaseAbort", 1).await;
    assert_eq!(count(&fake), [1, 0, 1]);
}

#[tokio::test]
async fn a_logout_waits_for_a_pending_abort() {
    let (_directory, path) = ova(|manifest| manifest);
    let (fake, client) = vcenter().await;
    fake.replies("POST /nfc/disk", [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    tokio::select! {
        imported = import(&client, &path, &Unguarded) => panic!("{imported:?}"),
        () = fake.arrived("HttpNfcLeaseProgress", 1) => {}
    }
    client.log_out().await.unwrap();
    let order = fake.order();
    let ends: Vec<_> = order.iter().filter(|method| matches!(&***method, "HttpNfcLeaseAbort" | "Logout")).collect();
    assert_eq!(ends, ["HttpNfcLeaseAbort", "Logout"]);
}

#[tokio::test]
async fn progress_ends_at_a_hundred() {
    let (_directory, path) = ova(|manifest| manifest);
    let (_fake, client) = vcenter().await;
    let told = Mutex::new(Vec::<Sent>::new());
    let tell = |sent| told.lock().unwrap().push(sent);
    import_by(client.changes(&Unguarded).telling_upload(&tell), &path).await.unwrap();
    let last = told.into_inner().unwrap().pop().unwrap();
    assert_eq!((last.bytes, last.percent()), (last.total, 100));
    assert!(last.total > 0);
}

#[tokio::test]
async fn imports_wait_for_imports_tasks_do_not() {
    let (fake, _) = vcenter().await;
    let client = fake.client_with(|settings| (settings.tasks, settings.imports) = (1, 1)).await;
    let (_directory, path) = ova(|manifest| manifest);
    let go = Arc::new(Notify::new());
    let held = Reply::When(go.clone(), Box::new(Reply::Status(200, String::new())));
    fake.replies("POST /nfc/disk", [held, Reply::Status(200, String::new())]);
    let start = || {
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move { import(&client, &path, &Unguarded).await })
    };
    let first = start();
    fake.arrived("POST /nfc/disk", 1).await;
    let second = start();
    fake.arrived("CreateImportSpec", 2).await;
    // A node is powered off while its image's successor is uploaded.
    let (vm, changes) = (MoRef::vm("vm-1"), client.changes(&Unguarded));
    for method in ["PowerOffVM_Task", "Destroy_Task"] {
        fake.says(method, TASK);
    }
    fake.replies("WaitForUpdatesEx", [Reply::Response(success(""))]);
    let tasks = async {
        changes.power_off(&vm).await.unwrap();
        changes.destroy(&vm).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(20), tasks).await.expect("they wait for the upload");
    assert!(!first.is_finished());
    assert_eq!(fake.count("ImportVApp"), 1, "the second one waits");
    fake.replies("WaitForUpdatesEx", [Reply::Response(lease(&fake.address, "ready"))]);
    go.notify_one();
    succeed([first, second]).await;
    assert_eq!(count(&fake), [2, 2, 0]);
}
