//! Sessions, faults and lost answers, with scripted answers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::clock::Clock;
use super::*;
use crate::connection::Trust;
use crate::error::Error;
use crate::fake::{Fake, Permits, Reply, missing, object, others_had_their_turn, page, service_content, succeed};
use crate::guard::{Fence, Unguarded};
use crate::method::{CURRENT_TIME, POWER_ON_VM, SHUTDOWN_GUEST};
use crate::treatment::Outcome;

fn vm() -> MoRef {
    MoRef::vm("vm-1")
}

fn named(name: &str) -> Reply {
    Reply::Response(page(&object("VirtualMachine", "vm-1", &[("name", name)]), None))
}

/// Starts a look with a client.
fn looking(client: &Client) -> JoinHandle<crate::error::Result<crate::collector::Object>> {
    let client = client.clone();
    tokio::spawn(async move { client.look(&vm(), &["name"]).await })
}

#[tokio::test]
async fn one_login_gives_each_call_its_cookie() {
    let (fake, client) = Fake::connected().await;
    fake.replies("RetrievePropertiesEx", [named("a")]);
    assert_eq!(client.look(&vm(), &["name"]).await.unwrap().text("name"), "a");
    assert_eq!(client.user_name().await, "LAB\\deployer");
    assert_eq!(client.service().about.instance_uuid, "u");
    insta::assert_snapshot!(fake.asked("Login")[0].call());
    insta::assert_snapshot!(fake.asked("RetrievePropertiesEx")[0].call());
    let head = &fake.asked("RetrievePropertiesEx")[0].head;
    assert!(head.contains("cookie: vmware_soap_session=\"s1\"\r\n"), "{head}");
    assert!(head.contains("soapaction: urn:vim25/7.0.0.0\r\n"), "{head}");
    client.log_out().await.unwrap();
    client.log_out().await.unwrap();
    assert_eq!((fake.count("Login"), fake.count("Logout")), (1, 1));
    let error = client.look(&vm(), &["name"]).await.unwrap_err();
    assert_eq!(error.to_string(), "calling vCenter: this client has logged out");
}

#[tokio::test]
async fn slow_cleanup_does_not_block_the_logout() {
    let fake = Fake::start().await;
    let client = fake.client_with(|settings| settings.returns = Duration::from_millis(10)).await;
    client.give_back(std::future::pending());
    let left = tokio::time::timeout(Duration::from_secs(600), client.log_out()).await;
    left.expect("it goes on without").unwrap();
    assert_eq!(fake.count("Logout"), 1);
}

#[tokio::test]
async fn single_hosts_and_old_versions_are_refused() {
    for (api_type, version, expected) in [
        ("HostAgent", "8.0.3.0", "and not a vCenter"),
        ("VirtualCenter", "6.7.3", "7.0 or later is needed"),
        ("VirtualCenter", "", "7.0 or later is needed"),
    ] {
        let fake = Fake::start().await;
        fake.says("RetrieveServiceContent", &service_content(api_type, version));
        let error = Client::connect(fake.connect()).await.err().unwrap();
        assert_eq!(error.outcome(), Outcome::Refused);
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(fake.count("Login"), 0, "nobody is told the password");
    }
}

#[tokio::test]
async fn a_rejected_login_is_denied_and_not_repeated() {
    let fake = Fake::start().await;
    fake.replies("Login", [Reply::Fault("InvalidLogin", String::new())]);
    let error = Client::connect(fake.connect()).await.err().unwrap();
    assert_eq!((error.outcome(), fake.count("Login")), (Outcome::Denied, 1));
    assert!(error.to_string().starts_with("logging in as deployer at http://127.0.0.1:"), "{error}");
    assert!(!error.to_string().contains("pa<ss>"));
}

#[tokio::test]
async fn calls_after_a_rejected_login_send_none() {
    let (fake, client) = Fake::connected().await;
    // The password has changed since the login, and the session ends.
    fake.replies("RetrievePropertiesEx", [Reply::Fault("NotAuthenticated", String::new())]);
    fake.replies("Login", [Reply::Fault("InvalidLogin", String::new())]);
    for _ in 0..5 {
        let error = client.look(&vm(), &["name"]).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Denied, "{error}");
        assert!(error.to_string().contains("logging in as deployer") && error.is_fault("InvalidLogin"), "{error}");
    }
    assert_eq!((fake.count("Login"), fake.count("RetrievePropertiesEx")), (2, 1));
}

#[tokio::test]
async fn an_ended_session_is_renewed_once_for_all() {
    let (fake, client) = Fake::connected().await;
    let together = Arc::new(Notify::new());
    let ended = || Reply::When(together.clone(), Box::new(Reply::Fault("NotAuthenticated", String::new())));
    fake.replies("RetrievePropertiesEx", [ended(), ended(), ended(), named("a")]);
    let looks: Vec<_> = (0..3).map(|_| looking(&client)).collect();
    fake.arrived("RetrievePropertiesEx", 3).await;
    together.notify_waiters();
    for look in looks {
        assert_eq!(look.await.unwrap().unwrap().text("name"), "a");
    }
    assert_eq!((fake.count("Login"), fake.count("RetrievePropertiesEx")), (2, 6));
    let last = fake.asked("RetrievePropertiesEx").pop().unwrap();
    assert!(last.head.contains("vmware_soap_session=\"s2\""), "{}", last.head);
}

#[tokio::test]
async fn callers_wait_together_for_a_hanging_login() {
    let (fake, client) = Fake::connected().await;
    let (together, hangs) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let ended = || Reply::When(together.clone(), Box::new(Reply::Fault("NotAuthenticated", String::new())));
    fake.replies("RetrievePropertiesEx", [ended(), ended(), ended(), named("a")]);
    let accepted = Reply::Response("<returnval><userName>LAB\\deployer</userName></returnval>".to_owned());
    fake.replies("Login", [Reply::When(hangs.clone(), Box::new(Reply::Cut)), accepted]);
    let mut looks: Vec<_> = (0..3).map(|_| looking(&client)).collect();
    fake.arrived("RetrievePropertiesEx", 3).await;
    together.notify_waiters();
    fake.arrived("Login", 2).await;
    // Another caller, which has sent no request yet.
    looks.push(looking(&client));
    // Now all of them wait for the login: the session's end arrived over open connections.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    hangs.notify_waiters();
    for look in looks {
        let error = look.await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with("logging in as deployer"), "{error}");
        assert_eq!(error.outcome(), Outcome::Transient, "{error}");
    }
    assert_eq!((fake.count("Login"), fake.count("RetrievePropertiesEx")), (2, 3));
    // A later caller tries again.
    fake.replies("RetrievePropertiesEx", [Reply::Fault("NotAuthenticated", String::new()), named("a")]);
    assert_eq!(client.look(&vm(), &["name"]).await.unwrap().text("name"), "a");
    assert_eq!(fake.count("Login"), 3);
}

#[tokio::test]
async fn a_login_survives_its_caller() {
    let accepted = Reply::Response("<returnval><userName>LAB\\deployer</userName></returnval>".to_owned());
    for (reply, is_accepted) in [(Reply::Fault("InvalidLogin", String::new()), false), (accepted, true)] {
        let (fake, client) = Fake::connected().await;
        fake.replies("RetrievePropertiesEx", [Reply::Fault("NotAuthenticated", String::new()), named("a")]);
        let hangs = Arc::new(Notify::new());
        fake.replies("Login", [Reply::When(hangs.clone(), Box::new(reply.clone())), reply]);
        let goes = looking(&client);
        fake.arrived("Login", 2).await;
        goes.abort();
        assert!(goes.await.unwrap_err().is_cancelled());
        let waits = looking(&client);
        others_had_their_turn().await;
        assert_eq!(fake.count("Login"), 2, "the first one is not answered yet");
        hangs.notify_one();
        let later = looking(&client);
        for look in [waits, later] {
            let looked = look.await.unwrap();
            assert_eq!(looked.is_ok(), is_accepted, "{looked:?}");
            if let Err(error) = looked {
                assert!(error.is_fault("InvalidLogin") && error.outcome() == Outcome::Denied, "{error}");
            }
        }
        assert_eq!(fake.count("Login"), 2);
    }
}

#[tokio::test]
async fn properties_missing_without_a_session_are_requested_again() {
    let (fake, client) = Fake::connected().await;
    let ended = Reply::Response(page(&missing("VirtualMachine", "vm-1", "name", "NotAuthenticated"), None));
    fake.replies("RetrievePropertiesEx", [ended, named("a")]);
    assert_eq!(client.look(&vm(), &["name"]).await.unwrap().text("name"), "a");
    assert_eq!(fake.count("Login"), 2);
    // A property that the account may not read stays missing, with the reason.
    fake.says("RetrievePropertiesEx", &page(&missing("VirtualMachine", "vm-1", "name", "NoPermission"), None));
    let object = client.look(&vm(), &["name"]).await.unwrap();
    assert_eq!((object.text("name"), object.need("name").unwrap_err().outcome()), ("", Outcome::Denied));
    assert_eq!(fake.count("Login"), 2);
}

#[tokio::test]
async fn sessions_that_keep_ending_cause_no_loop() {
    let (fake, client) = Fake::connected().await;
    fake.replies("RetrievePropertiesEx", [Reply::Fault("NotAuthenticated", String::new())]);
    let error = client.look(&vm(), &["name"]).await.unwrap_err();
    assert_eq!((error.outcome(), fake.count("Login")), (Outcome::Transient, 2));
}

#[tokio::test]
async fn lost_looks_are_repeated_lost_changes_in_doubt() {
    let (fake, client) = Fake::connected().await;
    let unhealthy = Reply::Status(503, "no healthy upstream".to_owned());
    fake.replies("RetrievePropertiesEx", [Reply::Cut, unhealthy.clone(), named("a")]);
    assert_eq!(client.look(&vm(), &["name"]).await.unwrap().text("name"), "a");
    for (reply, words) in [
        (Reply::Cut, "error sending request"),
        (unhealthy, "HTTP status 503"),
        (Reply::Status(200, "<html/>".to_owned()), "no SOAP envelope"),
        (Reply::Fault("HostCommunication", String::new()), "HostCommunication"),
        (Reply::Fault("FaultOfALaterVersion", String::new()), "FaultOfALaterVersion"),
    ] {
        fake.replies("ShutdownGuest", [reply]);
        let before = fake.count("ShutdownGuest");
        let error = client.perform(SHUTDOWN_GUEST, &vm(), vec![], &Unguarded).await.unwrap_err();
        assert_eq!((error.outcome(), fake.count("ShutdownGuest") - before), (Outcome::InDoubt, 1), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn unreached_calls_are_transient() {
    let fake = Fake::start().await;
    let mut connect = fake.connect();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    connect.address = format!("http://{free}");
    let error = Client::connect(connect).await.err().unwrap();
    assert_eq!(error.outcome(), Outcome::Transient);
    assert!(matches!(error, Error::Unreached { .. }), "{error}");
}

#[tokio::test]
async fn guards_are_asked_before_each_request() {
    let (fake, client) = Fake::connected().await;
    fake.replies("ShutdownGuest", [Reply::Fault("NotAuthenticated", String::new()), Reply::Response(String::new())]);
    let guard = Permits(AtomicUsize::new(1));
    let error = client.perform(SHUTDOWN_GUEST, &vm(), vec![], &guard).await.unwrap_err();
    assert_eq!((error.outcome(), error.to_string()), (Outcome::Stopped, "another command has taken over".to_owned()));
    assert_eq!((fake.count("ShutdownGuest"), fake.count("Login")), (1, 2));
    client.perform(SHUTDOWN_GUEST, &vm(), vec![], &Permits(AtomicUsize::new(1))).await.unwrap();
}

#[tokio::test]
async fn blocked_tasks_wait_until_the_patience_ends() {
    let (fake, client) = Fake::connected().await;
    let busy = || Reply::Fault("TaskInProgress", String::new());
    fake.replies("PowerOnVM_Task", [busy(), busy(), Reply::Response(crate::fake::TASK.to_owned())]);
    client.perform(POWER_ON_VM, &vm(), vec![], &Unguarded).await.unwrap();
    assert_eq!(fake.count("PowerOnVM_Task"), 3);
    let impatient = fake.client_with(|settings| settings.patience = Duration::ZERO).await;
    fake.replies("PowerOnVM_Task", [busy()]);
    let error = impatient.perform(POWER_ON_VM, &vm(), vec![], &Unguarded).await.unwrap_err();
    assert!(error.is_fault("TaskInProgress") && error.outcome() == Outcome::Transient, "{error}");
}

/// A client that sets so many calls and tasks as the common limits.
async fn limited(fake: &Fake, limits: &Limits, calls: usize) -> Client {
    let mut connect = fake.connect();
    (connect.settings.calls, connect.settings.tasks) = (calls, calls);
    let client = Client::connect_within(connect, limits).await.unwrap();
    client.set_limits();
    client
}

#[tokio::test]
async fn changed_limits_apply_to_all_sessions_together() {
    let (fake, limits) = (Fake::start().await, Limits::default());
    let connected = async |calls: usize| limited(&fake, &limits, calls).await;
    let method = "RetrievePropertiesEx";
    let settled = async || {
        others_had_their_turn().await;
        fake.count(method)
    };
    let go = Arc::new(Notify::new());
    let held = || Reply::When(go.clone(), Box::new(named("a")));
    fake.replies(method, [held(), held(), named("a")]);
    let before = connected(2).await;
    let mut looks = vec![looking(&before), looking(&before)];
    fake.arrived(method, 2).await;
    // Fewer slots: requests under way continue. Neither client sends another one until their number is below the limit.
    let now = connected(1).await;
    looks.extend([looking(&now), looking(&before)]);
    assert_eq!(settled().await, 2);
    // One at a time, after both are answered.
    fake.replies(method, [held()]);
    go.notify_waiters();
    fake.arrived(method, 3).await;
    assert_eq!(settled().await, 3);
    // More slots.
    let later = connected(3).await;
    looks.extend([looking(&later), looking(&later)]);
    fake.arrived(method, 5).await;
    assert_eq!(settled().await, 5);
    fake.replies(method, [named("a")]);
    go.notify_waiters();
    succeed(looks).await;
    // Slots of tasks and turns are shared as well.
    let slots = [now.task_slot("").await, later.task_slot("").await, before.task_slot("").await];
    assert!(tokio::time::timeout(Duration::ZERO, now.task_slot("")).await.is_err());
    drop(slots);
    let turn = before.turn(&vm()).await;
    assert!(tokio::time::timeout(Duration::ZERO, now.turn(&vm())).await.is_err());
    drop(turn);
    drop(now.turn(&vm()).await);
}

#[tokio::test]
async fn lowered_limits_apply_to_waiting_callers() {
    let (fake, limits) = (Fake::start().await, Limits::default());
    let connected = async |calls: usize| limited(&fake, &limits, calls).await;
    let method = "RetrievePropertiesEx";
    let client = connected(2).await;
    let answers = [(); 3].map(|()| Arc::new(Notify::new()));
    let held = answers.iter().map(|answer| Reply::When(answer.clone(), Box::new(named("a"))));
    fake.replies(method, held.chain([named("a")]));
    let mut looks = vec![looking(&client)];
    fake.arrived(method, 1).await;
    looks.push(looking(&client));
    fake.arrived(method, 2).await;
    looks.extend((0..3).map(|_| looking(&client)));
    others_had_their_turn().await;
    connected(1).await;
    answers[0].notify_one();
    looks.remove(0).await.unwrap().unwrap();
    others_had_their_turn().await;
    assert_eq!(fake.count(method), 2, "one is still at work");
    answers[1].notify_one();
    fake.arrived(method, 3).await;
    others_had_their_turn().await;
    assert_eq!(fake.count(method), 3);
    // More slots again, while one of them is taken.
    connected(2).await;
    fake.arrived(method, 4).await;
    answers[2].notify_one();
    succeed(looks).await;
    assert_eq!(fake.count(method), 5);
}

#[tokio::test]
async fn slots_of_dropped_callers_last_until_the_answer() {
    let fake = Fake::start().await;
    let client = fake.client_with(|settings| settings.calls = 1).await;
    let go = Arc::new(Notify::new());
    let held = Reply::When(go.clone(), Box::new(Reply::Response(String::new())));
    // A look, and a look of a guard that is dropped with its change.
    for guarded in [false, true] {
        fake.replies("RetrievePropertiesEx", [held.clone(), named("a")]);
        let (by, seen) = (client.clone(), fake.count("RetrievePropertiesEx"));
        let goes = tokio::spawn(async move {
            if guarded {
                let _ = by.perform(SHUTDOWN_GUEST, &vm(), vec![], &Looks(by.clone())).await;
            } else {
                let _ = by.look(&vm(), &["name"]).await;
            }
        });
        fake.arrived("RetrievePropertiesEx", seen + 1).await;
        goes.abort();
        assert!(goes.await.unwrap_err().is_cancelled());
        let next = looking(&client);
        others_had_their_turn().await;
        assert_eq!(fake.count("RetrievePropertiesEx"), seen + 1, "the first one is not answered yet");
        go.notify_waiters();
        next.await.unwrap().unwrap();
    }
    assert_eq!(fake.count("ShutdownGuest"), 0);
}

#[tokio::test]
async fn settings_without_a_used_session_change_no_limits() {
    let (fake, limits) = (Fake::start().await, Limits::default());
    let connect = |calls: usize| {
        let mut connect = fake.connect();
        connect.settings.calls = calls;
        connect
    };
    let client = Client::connect_within(connect(1), &limits).await.unwrap();
    client.set_limits();
    // A session that was opened, but to the wrong server.
    let another = Client::connect_within(connect(4), &limits).await.unwrap();
    another.log_out().await.unwrap();
    fake.replies("Login", [Reply::Fault("InvalidLogin", String::new())]);
    assert!(Client::connect_within(connect(4), &limits).await.is_err());
    let go = Arc::new(Notify::new());
    fake.replies("RetrievePropertiesEx", [Reply::When(go.clone(), Box::new(named("a"))), named("a")]);
    let looks: Vec<_> = (0..2).map(|_| looking(&client)).collect();
    fake.arrived("RetrievePropertiesEx", 1).await;
    others_had_their_turn().await;
    assert_eq!(fake.count("RetrievePropertiesEx"), 1);
    go.notify_waiters();
    succeed(looks).await;
}

/// A guard that reads with the client of its change.
struct Looks(Client);

#[async_trait]
impl Fence for Looks {
    async fn still(&self) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.look(&vm(), &["name"]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn no_wait_separates_permission_and_request() {
    let fake = Fake::start().await;
    let client = fake.client_with(|settings| settings.calls = 1).await;
    let go = Arc::new(Notify::new());
    fake.replies("CurrentTime", [Reply::When(go.clone(), Box::new(Reply::Response(String::new())))]);
    let call = || {
        let by = client.clone();
        tokio::spawn(async move { by.call(CURRENT_TIME, &vm(), vec![]).await })
    };
    let held = call();
    fake.arrived("CurrentTime", 1).await;
    fake.says("CurrentTime", "");
    // In its turn, with a session that ends during the guard's question.
    fake.replies("RetrievePropertiesEx", [Reply::Fault("NotAuthenticated", String::new()), named("a")]);
    fake.says("ShutdownGuest", "");
    let by = client.clone();
    let change = tokio::spawn(async move { by.perform(SHUTDOWN_GUEST, &vm(), vec![], &Looks(by.clone())).await });
    let looks: Vec<_> = (0..8).map(|_| call()).collect();
    others_had_their_turn().await;
    go.notify_waiters();
    succeed(looks.into_iter().chain([held, change])).await;
    let order = fake.order();
    let first = order.iter().position(|method| method == "CurrentTime").unwrap();
    let look = "RetrievePropertiesEx";
    assert_eq!(order[first + 1..first + 5], [look, "Login", look, "ShutdownGuest"], "{order:?}");
    assert_eq!(order.iter().filter(|method| *method == "CurrentTime").count(), 9);
}

#[tokio::test]
async fn idle_sessions_live_until_the_client_is_dropped() {
    let fake = Fake::start().await;
    fake.says("CurrentTime", "<returnval>2026-01-01T00:00:00Z</returnval>");
    let client = fake.client_with(|settings| settings.keep_alive = Duration::from_millis(5)).await;
    fake.arrived("CurrentTime", 2).await;
    let other = Arc::downgrade(&client.inner);
    drop(client);
    // A call that is under way ends first.
    while other.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A server's key and certificate, and its TLS.
fn tls() -> (rcgen::CertifiedKey<rcgen::KeyPair>, tokio_rustls::TlsAcceptor) {
    let key = rcgen::generate_simple_self_signed(["vcenter.example.org".to_owned()]).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    (key, tokio_rustls::TlsAcceptor::from(Arc::new(config)))
}

fn thumbprint(key: &rcgen::CertifiedKey<rcgen::KeyPair>) -> crate::Thumbprint {
    crate::Thumbprint(ova::Sha256::of(key.cert.der()).0)
}

#[tokio::test]
async fn only_the_pinned_server_is_trusted() {
    let (key, acceptor) = tls();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let fake = Fake::start().await;
    let server = fake.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, acceptor) = (server.clone(), acceptor.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    server.serve(stream).await;
                }
            });
        }
    });
    let thumbprint = thumbprint(&key);
    let to = |trust| Connect { address: format!("https://{address}"), trust, ..fake.connect() };
    Client::connect(to(Trust::Thumbprint(thumbprint))).await.unwrap();
    assert_eq!(fake.count("Login"), 1);
    let error = Client::connect(to(Trust::Thumbprint(crate::Thumbprint([7; 32])))).await.err().unwrap();
    assert!(error.to_string().contains(&thumbprint.to_string()), "it names what it was shown: {error}");
    assert!(matches!(error, Error::Unreached { .. }), "{error}");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let error = Client::connect(to(Trust::Authorities(file.clone()))).await.err().unwrap();
    assert!(error.to_string().contains("ca.pem: No such file"), "{error}");
    std::fs::write(&file, "no certificate").unwrap();
    let error = Client::connect(to(Trust::Authorities(file.clone()))).await.err().unwrap();
    assert!(error.to_string().contains("no certificate in PEM"), "{error}");
    // A CA of another server. The name of this server is not in its certificate either.
    std::fs::write(&file, key.cert.pem()).unwrap();
    let error = Client::connect(to(Trust::Authorities(file))).await.err().unwrap();
    assert!(matches!(error, Error::Unreached { .. }), "{error}");
    assert_eq!(fake.count("Login"), 1, "nobody else is told the password");
}

#[tokio::test]
async fn unacknowledged_requests_end_early_and_never_arrive() {
    let fake = Fake::start().await;
    let client = fake.client_with(|settings| settings.change_limit = Duration::from_secs(3600)).await;
    assert_eq!(client.arrives_within(), Duration::from_secs(3600) + GONE);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/folder/a", listener.local_addr().unwrap())).unwrap();
    // More bytes than the buffers of both sides.
    let put = Transfer::Put(vec![0; 64 << 20], &Unguarded);
    let (given_up, accepted) = tokio::join!(client.transfer(&url, &put), listener.accept());
    let error = given_up.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt, "{error}");
    let (mut stream, _) = accepted.unwrap();
    let mut read = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut read).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset, "after {} bytes", read.len());
}

#[tokio::test]
async fn permitted_changes_do_not_outlive_a_sleep() {
    let (key, acceptor) = tls();
    let (fake, clock) = (Fake::start().await, Clock::default());
    let mut connect = Connect { trust: Trust::Thumbprint(thumbprint(&key)), ..fake.connect() };
    // Longer than this machine may pause meanwhile.
    connect.settings.change_limit = Duration::from_secs(3600);
    let client = Client::connect_by(connect, &Limits::default(), clock.clone()).await.unwrap();
    client.set_limits();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    for (slept, is_put) in [(0, true), (0, false), (7200, true), (7200, false)] {
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            // The client connects, and its change is already permitted.
            clock.sleep(Duration::from_secs(slept));
            let Ok(mut stream) = acceptor.accept(stream).await else { return 0 };
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await.unwrap_or(0)
        };
        let change = async {
            if is_put {
                let url = Url::parse(&format!("{address}/folder/a")).unwrap();
                return client.transfer(&url, &Transfer::Put(b"a".to_vec(), &Unguarded)).await.unwrap_err().to_string();
            }
            // A change of the API takes the same path, to a server without a login.
            let transport = crate::connection::Transport::new(&address, &Trust::Thumbprint(thumbprint(&key))).unwrap();
            let wire = Wire::new(transport, client.settings().clone(), clock.clone(), Limits::default());
            let slot = client.permitted(&Unguarded).await.unwrap();
            format!("{:?}", wire.exchange(SHUTDOWN_GUEST, &vm(), vec![], None, &slot).await.unwrap())
        };
        let (read, said) = tokio::join!(server, change);
        assert_eq!(read > 0, slept == 0, "{read} bytes of a change: {said}");
        let words = if is_put { "; it may have happened" } else { "Lost(" };
        assert!(said.contains(words) && said.contains("no answer within 3600 s") == (slept > 0), "{said}");
    }
}
