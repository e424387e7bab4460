//! The ends of tasks, with scripted answers.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::fake::{
    Fake, Reply, TASK, failure, missing, object, others_had_their_turn, page, reference, service_content, succeed,
    success, updates,
};
use crate::guard::Unguarded;
use crate::method::{
    COPY_VIRTUAL_DISK, DELETE_VIRTUAL_DISK, DESTROY, Method, POWER_OFF_VM, POWER_ON_VM, RECONFIGURE_VM,
};

fn vm() -> MoRef {
    MoRef::vm("vm-1")
}

/// Starts a task of a VM.
fn run(client: &Client, method: Method, id: &'static str) -> JoinHandle<Result<Option<Element>>> {
    let client = client.clone();
    tokio::spawn(async move { client.changes(&Unguarded).run(method, &MoRef::vm(id), vec![]).await })
}

fn running(percent: &str) -> String {
    updates("1", "Task", "task-1", &[("info.state", "running"), ("info.progress", percent)])
}

#[tokio::test]
async fn each_progress_of_a_task_is_reported_once() {
    let (fake, client) = Fake::connected().await;
    fake.runs("PowerOnVM_Task", [running("10"), running("10"), running("70"), success("type=HostSystem>host-1")]);
    let told = Mutex::new(Vec::new());
    let tell = |percent| told.lock().unwrap().push(percent);
    let result = client.changes(&Unguarded).telling(&tell).run(POWER_ON_VM, &vm(), vec![]).await.unwrap();
    assert_eq!(result.unwrap().to_reference(), Some(MoRef::new("HostSystem", "host-1")));
    assert_eq!(told.into_inner().unwrap(), [10, 70]);
    assert_eq!(fake.count("DestroyPropertyCollector"), 1);
}

#[tokio::test]
async fn a_task_that_fails_says_why_by_type() {
    let (fake, client) = Fake::connected().await;
    for (fault, outcome) in [
        ("InvalidPowerState", Outcome::Changed),
        ("NoDiskSpace", Outcome::Transient),
        ("FileLocked", Outcome::Transient),
        ("SystemError", Outcome::InDoubt),
        ("FaultOfALaterVersion", Outcome::InDoubt),
    ] {
        fake.runs("PowerOnVM_Task", [running("10"), failure(fault)]);
        let error = client.changes(&Unguarded).run(POWER_ON_VM, &vm(), vec![]).await.unwrap_err();
        assert_eq!((error.outcome(), error.is_fault(fault)), (outcome, true), "{error}");
        assert_eq!(error.to_string(), format!("PowerOnVM_Task of VirtualMachine vm-1: {fault} (Said of {fault})"));
    }
}

#[tokio::test]
async fn a_task_blocked_by_another_is_restarted() {
    let (fake, client) = Fake::connected().await;
    fake.runs("PowerOnVM_Task", [failure("TaskInProgress"), failure("TaskInProgress"), success("")]);
    assert!(client.changes(&Unguarded).run(POWER_ON_VM, &vm(), vec![]).await.unwrap().is_none());
    assert_eq!(fake.count("PowerOnVM_Task"), 3);
}

#[tokio::test]
async fn tasks_survive_lost_connections_and_ended_sessions() {
    let (fake, client) = Fake::connected().await;
    fake.runs("PowerOnVM_Task", [running("10")]);
    let ended = Reply::Fault("NotAuthenticated", String::new());
    fake.replies("WaitForUpdatesEx", [Reply::Response(running("10")), ended, Reply::Cut, Reply::Response(success(""))]);
    // The reads between are cut off more often than one read is repeated.
    let info = page(&object("Task", "task-1", &[("info.state", "running")]), None);
    let cuts = (0..5).map(|_| Reply::Cut).chain([Reply::Response(info)]);
    fake.replies("RetrievePropertiesEx", cuts);
    client.changes(&Unguarded).run(POWER_ON_VM, &vm(), vec![]).await.unwrap();
    assert_eq!((fake.count("PowerOnVM_Task"), fake.count("Login")), (1, 2), "it is started once");
}

#[tokio::test]
async fn failed_logins_leave_no_task_in_doubt() {
    let (fake, client) = Fake::connected().await;
    fake.runs("Destroy_Task", []);
    fake.replies("WaitForUpdatesEx", [Reply::Cut, Reply::Cut, Reply::Response(success(""))]);
    let [together, starts] = [(); 2].map(|()| Arc::new(Notify::new()));
    let ended = || Reply::When(together.clone(), Box::new(Reply::Fault("NotAuthenticated", String::new())));
    let info = page(&object("Task", "task-1", &[("info.state", "running")]), None);
    fake.replies("RetrievePropertiesEx", [ended(), ended(), Reply::Response(info)]);
    let fault = Reply::When(starts.clone(), Box::new(Reply::Fault("SystemError", String::new())));
    let accepted = Reply::Response("<returnval><userName>LAB\\deployer</userName></returnval>".to_owned());
    fake.replies("Login", [fault, accepted]);
    let follows = ["vm-1", "vm-2"].map(|id| run(&client, DESTROY, id));
    fake.arrived("RetrievePropertiesEx", 2).await;
    others_had_their_turn().await;
    together.notify_waiters();
    fake.arrived("Login", 2).await;
    others_had_their_turn().await;
    starts.notify_one();
    succeed(follows).await;
    assert_eq!(fake.count("Destroy_Task"), 2);
}

#[tokio::test]
async fn tasks_without_a_seen_end_are_in_doubt() {
    let (fake, client) = Fake::connected().await;
    fake.runs("PowerOnVM_Task", [running("10")]);
    let changes = client.changes(&Unguarded).within(Duration::from_millis(5));
    let error = changes.run(POWER_ON_VM, &vm(), vec![]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt);
    assert!(error.to_string().contains("still runs"), "{error}");
    // vCenter was restarted, and no longer knows the task.
    fake.replies("CreateFilter", [Reply::Fault("ManagedObjectNotFound", String::new())]);
    fake.replies("RetrievePropertiesEx", [Reply::Fault("ManagedObjectNotFound", String::new())]);
    let error = client.changes(&Unguarded).run(POWER_ON_VM, &vm(), vec![]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt);
    fake.says("PowerOnVM_Task", "");
    let error = client.changes(&Unguarded).run(POWER_ON_VM, &vm(), vec![]).await.unwrap_err();
    assert!(error.to_string().contains("names no task") && error.outcome() == Outcome::InDoubt, "{error}");
}

#[tokio::test]
async fn only_changes_of_one_vm_are_serialized() {
    let (fake, client) = Fake::connected().await;
    fake.runs("PowerOnVM_Task", [success("")]);
    let go = Arc::new(Notify::new());
    let held = Reply::When(go.clone(), Box::new(Reply::Response(TASK.to_owned())));
    fake.replies("PowerOnVM_Task", [held, Reply::Response(TASK.to_owned())]);
    let start = |id| run(&client, POWER_ON_VM, id);
    let first = start("vm-1");
    fake.arrived("PowerOnVM_Task", 1).await;
    let second = start("vm-1");
    start("vm-2").await.unwrap().unwrap();
    assert_eq!(fake.count("PowerOnVM_Task"), 2, "the second of vm-1 waits");
    go.notify_one();
    succeed([first, second]).await;
    assert_eq!(fake.count("PowerOnVM_Task"), 3);
}

#[tokio::test]
async fn callers_waiting_for_a_turn_take_no_slot() {
    let fake = Fake::start().await;
    let client = fake.client_with(|settings| settings.tasks = 2).await;
    fake.runs("Destroy_Task", [success("")]);
    let go = Arc::new(Notify::new());
    let held = || Reply::When(go.clone(), Box::new(Reply::Response(TASK.to_owned())));
    fake.replies("Destroy_Task", [held(), held(), Reply::Response(TASK.to_owned())]);
    let start = |id| run(&client, DESTROY, id);
    let mut runs = vec![start("vm-1")];
    fake.arrived("Destroy_Task", 1).await;
    // It waits for the first task of its VM, and does not take the second slot.
    runs.push(start("vm-1"));
    runs.push(start("vm-2"));
    fake.arrived("Destroy_Task", 2).await;
    runs.push(start("vm-3"));
    others_had_their_turn().await;
    assert_eq!(fake.count("Destroy_Task"), 2);
    go.notify_waiters();
    succeed(runs).await;
    assert_eq!(fake.count("Destroy_Task"), 4);
}

#[tokio::test]
async fn power_and_settings_need_no_slot() {
    let fake = Fake::start().await;
    let client = fake.client_with(|settings| settings.tasks = 1).await;
    let go = Arc::new(Notify::new());
    fake.runs("DeleteVirtualDisk_Task", [success("")]);
    fake.replies("DeleteVirtualDisk_Task", [Reply::When(go.clone(), Box::new(Reply::Response(TASK.to_owned())))]);
    for method in [POWER_OFF_VM, POWER_ON_VM, RECONFIGURE_VM] {
        fake.says(method.name, TASK);
    }
    let (long, manager) = (client.clone(), client.service().manager("virtualDiskManager").unwrap());
    let long = tokio::spawn(async move { long.changes(&Unguarded).run(DELETE_VIRTUAL_DISK, &manager, vec![]).await });
    fake.arrived("DeleteVirtualDisk_Task", 1).await;
    for method in [POWER_OFF_VM, POWER_ON_VM, RECONFIGURE_VM] {
        let (changes, vm) = (client.changes(&Unguarded), vm());
        let brief = tokio::time::timeout(Duration::from_secs(20), changes.run(method, &vm, vec![])).await;
        brief.unwrap_or_else(|_| panic!("{} waits for the disk's end", method.name)).unwrap();
    }
    assert!(!long.is_finished());
    go.notify_one();
    long.await.unwrap().unwrap();
}

#[tokio::test]
async fn tasks_of_other_accounts_are_seen_and_awaited() {
    let (fake, client) = Fake::connected().await;
    let task_of = |state: &str| {
        object("Task", "task-1", &[("info.state", state), ("info.descriptionId", "VirtualMachine.clone")])
    };
    let task = |state: &str| Reply::Response(page(&task_of(state), None));
    let gone = Reply::Fault("ManagedObjectNotFound", String::new());
    fake.replies(
        "RetrievePropertiesEx",
        // One of them is forgotten: a request for all gets no answer, so each is read separately.
        [gone.clone(), task("running"), task("success"), gone],
    );
    let tasks = ["task-1", "task-2", "task-3"].map(|id| MoRef::new("Task", id));
    let found = client.running(&tasks).await.unwrap();
    let [seen] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&seen.task, seen.to_string().as_str()), (&tasks[0], "VirtualMachine.clone"));
    let whole = Running { on: "cp1".to_owned(), by: "VSPHERE.LOCAL\\backup".to_owned(), ..seen.clone() };
    assert_eq!(whole.to_string(), "VirtualMachine.clone of cp1 by VSPHERE.LOCAL\\backup");
    let asked = fake.count("RetrievePropertiesEx");
    let all = ["running", "queued", "error"].map(task_of).concat();
    fake.says("RetrievePropertiesEx", &page(&all, None));
    assert_eq!(client.running(&tasks).await.unwrap().len(), 2);
    assert_eq!(fake.count("RetrievePropertiesEx"), asked + 1);
    assert_eq!(client.running(&[]).await.unwrap(), []);
    fake.runs("none", [running("10"), failure("RequestCanceled")]);
    client.ended(&tasks[0], Duration::from_secs(60)).await.unwrap();
    fake.runs("none", [running("10")]);
    fake.replies("RetrievePropertiesEx", [task("running")]);
    let error = client.ended(&tasks[0], Duration::from_millis(5)).await.unwrap_err();
    assert!(matches!(error, Error::Late { .. }), "{error}");
}

async fn with_task_manager() -> Fake {
    let fake = Fake::start().await;
    let manager = reference("taskManager", "TaskManager", "TaskManager");
    let content = service_content("VirtualCenter", "8.0.3.0").replace("<about>", &format!("{manager}<about>"));
    fake.says("RetrieveServiceContent", &content);
    fake
}

/// A client whose task of a disk still runs.
async fn begun(method: Method) -> (Fake, Client) {
    let fake = with_task_manager().await;
    let client = fake.client().await;
    fake.runs(method.name, [running("10"), running("20")]);
    let manager = MoRef::new("VirtualDiskManager", "manager");
    let error = client.changes(&Unguarded).within(Duration::ZERO).run(method, &manager, vec![]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt);
    (fake, client)
}

#[tokio::test]
async fn unlisted_file_tasks_are_read_by_reference() {
    let (fake, client) = begun(DELETE_VIRTUAL_DISK).await;
    let none = page(&object("TaskManager", "TaskManager", &[("recentTask", "")]), None);
    let what = [("info.state", "running"), ("info.descriptionId", "VirtualDiskManager.deleteVirtualDisk")];
    let goes_on = page(&object("Task", "task-1", &what), None);
    fake.replies("RetrievePropertiesEx", [none, goes_on.clone(), goes_on].map(Reply::Response));
    let found = client.running_anywhere().await.unwrap();
    assert!(matches!(found.as_slice(), [task] if task.task == MoRef::new("Task", "task-1")), "{found:?}");
}

#[tokio::test]
async fn a_task_without_a_state_counts_as_running() {
    let (fake, client) = begun(COPY_VIRTUAL_DISK).await;
    let none = || page(&object("TaskManager", "TaskManager", &[("recentTask", "")]), None);
    let unread = || page(&missing("Task", "task-1", "info.state", "NoPermission"), None);
    for _ in 0..2 {
        fake.replies("RetrievePropertiesEx", [none(), unread(), unread()].map(Reply::Response));
        let found = client.running_anywhere().await.unwrap();
        let [task] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((&*task.what, &task.by), ("VirtualDiskManager.copyVirtualDisk", &client.user_name().await));
    }
}

/// The object of managers' tasks is not documented, and so neither is the set of accounts that see them.
#[tokio::test]
async fn the_self_test_searches_its_task_several_times() {
    let list = |task: &str| page(&object("TaskManager", "TaskManager", &[("recentTask", task)]), None);
    let listed = list("<ManagedObjectReference type=\"Task\">task-1</ManagedObjectReference>");
    // The number of looks without a result.
    for (empty, sees) in [(0, true), (2, true), (4, true), (5, false)] {
        let fake = with_task_manager().await;
        let client = fake.client().await;
        let looks = (0..empty).map(|_| list("")).chain([listed.clone()]);
        fake.replies("RetrievePropertiesEx", looks.map(Reply::Response));
        let (directory, datacenter) = ("[ds] kaas".parse().unwrap(), MoRef::new("Datacenter", "datacenter-2"));
        fake.runs("MoveDatastoreFile_Task", [failure("FileNotFound")]);
        for _ in 0..2 {
            assert_eq!(client.sees_tasks_on_files(&directory, &datacenter).await.unwrap(), sees, "{empty}");
        }
        assert_eq!(fake.count("MoveDatastoreFile_Task"), 1, "{empty}");
        // A privilege may be granted later: the next task of the client shows it.
        fake.runs("DeleteVirtualDisk_Task", [success("")]);
        let manager = MoRef::new("VirtualDiskManager", "manager");
        client.changes(&Unguarded).run(DELETE_VIRTUAL_DISK, &manager, vec![]).await.unwrap();
        assert!(client.sees_tasks_on_files(&directory, &datacenter).await.unwrap(), "{empty}");
        assert_eq!(fake.count("MoveDatastoreFile_Task"), 1, "{empty}");
    }
}
