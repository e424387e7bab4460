//! Datastores and their files, with scripted answers.

use std::sync::Arc;

use tokio::sync::Notify;

use super::*;
use crate::client::Transfer;
use crate::fake::{Fake, Reply, failure, object, page, reference, success, updates};
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

fn datastore(id: &str, more: &[(&str, &str)]) -> String {
    let all = [
        ("summary.name", id),
        ("summary.type", "VMFS"),
        ("summary.capacity", "1000"),
        ("summary.freeSpace", "10"),
        ("summary.accessible", "true"),
        ("summary.multipleHostAccess", "true"),
    ];
    object("Datastore", id, &[&all[..], more].concat())
}

#[tokio::test]
async fn datastores_show_maintenance_and_cluster() {
    let (fake, client) = Fake::connected().await;
    fake.says("CreateContainerView", &reference("returnval", "ContainerView", "view-1"));
    let all = [
        datastore("ds-1", &[("parent", "type=Folder>group-s5")]),
        datastore("ds-2", &[("parent", "type=StoragePod>group-p6"), ("summary.maintenanceMode", "normal")]),
        datastore("ds-3", &[("summary.maintenanceMode", "inMaintenance")]),
        datastore("ds-4", &[("summary.accessible", "false")]),
    ];
    fake.says("RetrievePropertiesEx", &page(&all.concat(), None));
    let found = client.datastores_in(&MoRef::new("Folder", "group-s5")).await.unwrap();
    assert_eq!(found.iter().map(Datastore::takes_vms).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!((found[0].pod.clone(), found[1].pod.clone()), (None, Some(MoRef::new("StoragePod", "group-p6"))));
    assert_eq!((found[0].capacity, found[0].free, found[0].shared), (1000, 10, true));
    fake.says("RetrievePropertiesEx", &page(&datastore("ds-1", &[]), None));
    assert_eq!(client.datastore(&MoRef::new("Datastore", "ds-1")).await.unwrap().name, "ds-1");
}

#[tokio::test]
async fn a_missing_directory_is_not_an_empty_one() {
    let (fake, client) = Fake::connected().await;
    let (store, top) = (MoRef::new("Datastore", "ds-1"), DatastorePath::new("ds", "a"));
    fake.says(
        "RetrievePropertiesEx",
        &page(&object("Datastore", "ds-1", &[("browser", "type=HostDatastoreBrowser>browser-1")]), None),
    );
    let files = r#"<folderPath>[ds] a</folderPath><file xsi:type="FolderFileInfo"><path>sub</path></file><file xsi:type="VmDiskFileInfo"><path>d.vmdk</path><fileSize>7</fileSize><modification>2026-01-01T00:00:00Z</modification></file>"#;
    fake.runs(
        "SearchDatastore_Task",
        [success(files), success("<folderPath>[ds] a</folderPath>"), failure("FileNotFound")],
    );
    let found = client.files(&store, &top, "*").await.unwrap();
    assert_eq!(
        found,
        [
            File { name: "sub".to_owned(), size: 0, is_directory: true, changed: String::new() },
            File {
                name: "d.vmdk".to_owned(),
                size: 7,
                is_directory: false,
                changed: "2026-01-01T00:00:00Z".to_owned()
            },
        ]
    );
    assert!(client.files(&store, &top, "*").await.unwrap().is_empty());
    assert_eq!(client.files(&store, &top, "*").await.unwrap_err().outcome(), Outcome::NotFound);
    insta::assert_snapshot!(fake.asked("SearchDatastore_Task")[0].call());
}

#[tokio::test]
async fn only_running_dropped_searches_are_cancelled() {
    let (fake, client) = Fake::connected().await;
    let (store, top) = (MoRef::new("Datastore", "ds-1"), DatastorePath::new("ds", "a"));
    let browser = object("Datastore", "ds-1", &[("browser", "type=HostDatastoreBrowser>browser-1")]);
    fake.says("RetrievePropertiesEx", &page(&browser, None));
    fake.runs("SearchDatastore_Task", []);
    fake.says("CancelTask", "");
    let begins = |task: &str| fake.says("SearchDatastore_Task", &reference("returnval", "Task", task));
    let ended = |task: &str| fake.asked("CancelTask").iter().filter(|asked| asked.call().contains(task)).count();
    // The datastore hangs, and the caller gives up.
    fake.replies("WaitForUpdatesEx", [Reply::When(Arc::new(Notify::new()), Box::new(Reply::Cut))]);
    for (times, task) in (1..).zip(["task-7", "task-8"]) {
        begins(task);
        tokio::select! {
            listed = client.files(&store, &top, "*") => panic!("{listed:?}"),
            () = fake.arrived("WaitForUpdatesEx", times) => {}
        }
        fake.arrived("CancelTask", times).await;
        assert_eq!((ended(task), fake.count("SearchDatastore_Task")), (1, times));
    }
    // It hangs for longer than the task limit.
    begins("task-9");
    let running = updates("1", "Task", "task-9", &[("info.state", "running")]);
    fake.replies("WaitForUpdatesEx", [Reply::Response(running)]);
    let short = fake.client_with(|settings| settings.task_limit = std::time::Duration::ZERO).await;
    let error = short.files(&store, &top, "*").await.unwrap_err();
    assert!(error.outcome() == Outcome::Transient && error.to_string().contains("still runs"), "{error}");
    short.log_out().await.unwrap();
    assert_eq!(ended("task-9"), 1);
    for end in [success("<folderPath>[ds] a</folderPath>"), failure("FileNotFound")] {
        fake.runs("SearchDatastore_Task", [end]);
        let _ = client.files(&store, &top, "*").await;
    }
    client.log_out().await.unwrap();
    assert_eq!(fake.count("CancelTask"), 3);
}

#[tokio::test]
async fn a_renamed_directory_replaces_no_other() {
    let (fake, client) = Fake::connected().await;
    let [from, to] = ["a", "b"].map(|path| DatastorePath::new("ds", path));
    let datacenter = MoRef::new("Datacenter", "datacenter-2");
    fake.runs("MoveDatastoreFile_Task", [success(""), failure("FileAlreadyExists")]);
    let changes = client.changes(&Unguarded);
    changes.move_file(&from, &to, &datacenter).await.unwrap();
    assert!(changes.move_file(&from, &to, &datacenter).await.unwrap_err().is_fault("FileAlreadyExists"));
    let call = fake.asked("MoveDatastoreFile_Task")[0].call();
    for part in ["sourceName>[ds] a<", "destinationName>[ds] b<", "force>false<"] {
        assert!(call.contains(part), "{call}");
    }
}

#[tokio::test]
async fn a_directory_is_created_once_and_deleted() {
    let (fake, client) = Fake::connected().await;
    let (directory, datacenter) = (DatastorePath::new("ds", "a/b"), MoRef::new("Datacenter", "datacenter-2"));
    let changes = client.changes(&Unguarded);
    fake.replies(
        "MakeDirectory",
        [Reply::Response(String::new()), Reply::Fault("FileAlreadyExists", String::new()), Reply::Cut],
    );
    changes.make_directory(&directory, &datacenter).await.unwrap();
    assert!(changes.make_directory(&directory, &datacenter).await.unwrap_err().is_fault("FileAlreadyExists"));
    assert_eq!(changes.make_directory(&directory, &datacenter).await.unwrap_err().outcome(), Outcome::InDoubt);
    fake.runs("DeleteDatastoreFile_Task", [success("")]);
    changes.delete_file(&directory, &datacenter).await.unwrap();
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        fake.asked("MakeDirectory")[0].call(),
        fake.asked("DeleteDatastoreFile_Task")[0].call()
    ));
}

#[tokio::test]
async fn files_are_written_and_read_under_the_session() {
    let (fake, client) = Fake::connected().await;
    let file = DatastorePath::new("ds 1", "a b/journal%.json");
    let target = "/folder/a%20b/journal%25.json?dcPath=folder%2FDC&dsName=ds+1 HTTP/1.1";
    let [put, get] = ["PUT", "GET"].map(|method| format!("{method} {}", target.split(' ').next().unwrap()));
    let status = |code, body: &str| Reply::Status(code, body.to_owned());
    fake.replies(&put, [status(401, ""), status(201, ""), Reply::Cut, status(503, ""), status(403, "")]);
    let changes = client.changes(&Unguarded);
    let write = || changes.write_file(&file, "folder/DC", b"bytes".to_vec());
    write().await.unwrap();
    let asked = fake.asked(&put);
    assert_eq!((asked.len(), asked[1].text().as_str(), fake.count("Login")), (2, "bytes", 2));
    assert!(asked[1].head.contains("cookie: vmware_soap_session=\"s2\""), "{}", asked[1].head);
    for outcome in [Outcome::InDoubt, Outcome::InDoubt, Outcome::Transient] {
        assert_eq!(write().await.unwrap_err().outcome(), outcome);
    }
    fake.replies(
        &get,
        [status(200, "bytes"), status(200, "too many bytes"), status(404, ""), status(503, ""), Reply::Cut],
    );
    assert_eq!(client.read_file(&file, "folder/DC", 5).await.unwrap(), b"bytes");
    for (outcome, words) in [
        (Outcome::Transient, "longer than 5 bytes"),
        (Outcome::NotFound, "no such file"),
        (Outcome::Transient, "status 503"),
        (Outcome::Transient, "error sending request"),
    ] {
        let error = client.read_file(&file, "folder/DC", 5).await.unwrap_err();
        assert_eq!((error.outcome(), error.to_string().contains(words)), (outcome, true), "{error}");
    }
}

#[tokio::test]
async fn answers_to_written_files_are_bounded() {
    let (fake, client) = Fake::connected().await;
    let url = client.server().join("folder/entry").unwrap();
    let said = |body: String| Reply::Status(200, body);
    fake.replies("PUT /folder/entry", [said("x".repeat(1 << 20)), said("well".to_owned())]);
    let put = || Transfer::Put(b"bytes".to_vec(), &Unguarded);
    assert_eq!(client.transfer(&url, &put()).await.unwrap(), b"", "it is written, and the rest is not read");
    assert_eq!(client.transfer(&url, &put()).await.unwrap(), b"well");
}
