//! `farmem cluster`: a cluster is shown and changed, in a file and under a key of etcd, and what people and
//! others wrote there stays.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use farmem_tests::{Etcd, Node, Scratch, assert_refusal, farmem_binary, managed_runner, refusal, wait_for};
use serde_json::Value;

use crate::far_redis::{KEYS, end_with_nothing_lost, loaded, small_pool, unique, wait_for_pages_on_nodes};
use crate::redis::verify;

const KEY: &str = "farmem/cluster";

fn farmem(arguments: &[&str]) -> Command {
    let mut command = Command::new(farmem_binary());
    command.arg("cluster").args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    farmem(arguments).output().expect("farmem can be started")
}

/// Runs what must go well; what it said on standard error.
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// What is shown of each node.
fn shown(arguments: &[&str]) -> Vec<Value> {
    let output = run(&[&["show"], arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    shown.as_array().expect("a list").clone()
}

/// Words that a command may contain.
fn text(path: &PathBuf) -> String {
    fs::read_to_string(path).expect("the test's own file")
}

#[test]
fn a_file_with_comments_changes_only_where_it_has_to() {
    let nodes = [Node::start("16M"), Node::start("16M")];
    let scratch = Scratch::new();
    let path = scratch.file("cluster.toml");
    let file = path.to_str().expect("a name of the test's own");
    let before = format!(
        "# All of them.\n\n[[node]]\nname = \"front\"   # runs programs\nrole = \"compute\"\n\n# Its fan is loud.\n[[node]]\nname = \
         \"one\"\nrole = \"memory\"\naddress = \"{}\"   # rack 3\n",
        nodes[0].address()
    );
    fs::write(&path, &before).expect("the test's own folder");

    done(&["join", file, "two", "--address", nodes[1].address(), "--size", "16M"]);
    let added = format!(
        "\n[[node]]\nname = \"two\"\nrole = \"memory\"\naddress = \"{}\"\nsize = \"16M\"\n",
        nodes[1].address()
    );
    assert_eq!(text(&path), format!("{before}{added}"));
    assert!(done(&["join", file, "two"]).contains("takes part already"));

    let said = done(&["drain", file, "one", "--wait", "--timeout", "20s"]);
    assert!(said.contains("one holds 0 bytes of 16 MiB"), "{said}");
    assert_eq!(text(&path), format!("{before}state = \"drain\"\n{added}"));
    let nodes_shown = shown(&[file]);
    let of = |name: &str| nodes_shown.iter().find(|node| node["name"] == name).expect("it is shown");
    assert_eq!((&of("one")["state"], &of("two")["state"]), (&"drain".into(), &"active".into()));
    assert_eq!(of("two")["lent_bytes"].as_u64(), Some(16 << 20));
    assert_eq!(of("two")["granted_bytes"].as_u64(), Some(0));
    assert!(of("front").get("lent_bytes").is_none());
    let table = run(&["show", file]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.lines().any(|line| line.starts_with("one ") && line.contains("drain")), "{table}");

    done(&["join", file, "one"]);
    assert_eq!(text(&path), format!("{before}state = \"active\"\n{added}"));
    done(&["leave", file, "two"]);
    assert_eq!(text(&path), format!("{before}state = \"active\"\n"));
    assert_eq!(fs::read_dir(scratch.path()).expect("the test's own folder").count(), 1);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence_and_changes_nothing() {
    let mut node = Node::start("16M");
    let scratch = Scratch::new();
    let path = scratch.file("cluster.toml");
    let file = path.to_str().expect("a name of the test's own");
    let cluster = format!(
        "[[node]]\nname = \"front\"\nrole = \"compute\"\n[[node]]\nname = \"one\"\nrole = \"memory\"\naddress = \"{}\"\n",
        node.address()
    );
    fs::write(&path, &cluster).expect("the test's own folder");
    let refused = |arguments: &[&str]| assert_refusal(2, &mut farmem(arguments));

    assert!(refused(&["drain", file, "nine"]).contains("it has no node nine; its nodes are: front, one"));
    assert!(refused(&["leave", file, "nine"]).contains("no node nine"));
    assert!(refused(&["drain", file, "front"]).contains("nothing to empty"));
    assert!(refused(&["join", file, "nine"]).contains("--address"));
    assert!(refused(&["join", file, "nine", "--address", "here"]).contains("--address"));
    assert!(refused(&["join", file, "nine", "--address", node.address()]).contains("twice"));
    assert!(refused(&["join", file, "one", "--address", "10.0.0.1:1"]).contains("one is in it already"));
    assert!(refused(&["join", file, "nine", "--address", "10.0.0.1:1", "--size", "much"]).contains("--size"));
    // The last one that lends.
    assert!(refused(&["leave", file, "one"]).contains("no node in it has the role memory or general"));
    assert!(refused(&["drain", file, "one", "--timeout", "5s"]).contains("--wait"));
    assert!(refused(&["show", file, "--cluster-login", file]).contains("a file needs none"));
    node.kill();
    assert!(refused(&["leave", file, "one"]).contains("can't be asked whether it holds anything"));
    assert_eq!(text(&path), cluster);

    fs::write(&path, "Dear Sir,").expect("the test's own folder");
    for arguments in [&["show", file][..], &["join", file, "one"], &["leave", file, "one", "--now"]] {
        assert!(refused(arguments).contains("cannot use"), "{arguments:?}");
    }
    assert_eq!(text(&path), "Dear Sir,");
    assert!(refused(&["show", "/nowhere/cluster.toml"]).contains("No such file"));
    assert!(refused(&["drain", "/dev/null", "one"]).contains("no node in it has the role memory or general"));
}

/// A node that was started by hand, and ends with its test.
struct Started(Child);

impl Started {
    /// Waits until it answers.
    fn of_cluster(source: &str, name: &str, options: &[&str], address: &str) -> Self {
        let mut command = Command::new(farmem_binary());
        command.args(["node", "--cluster", source, "--name", name, "--drain", "0"]).args(options);
        let node =
            Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("farmem can be started"));
        wait_for("a node that answers", || {
            let asked = Command::new(farmem_binary()).args(["node", "stat", address]).output();
            asked.expect("farmem can be started").status.success().then_some(())
        });
        node
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_file_starts_all_nodes_and_show_says_where_one_lends_another_amount() {
    let (scratch, etcd) = (Scratch::new(), Etcd::start());
    let path = scratch.file("cluster.toml");
    let file = path.to_str().expect("a name of the test's own");
    let address = |name: &str| format!("unix:{}", scratch.file(name).display());
    let node = |name: &str, role: &str, rest: &str| {
        format!("[[node]]\nname = \"{name}\"\nrole = \"{role}\"\naddress = \"{}\"\n{rest}\n", address(name))
    };
    let cluster = [
        node("one", "general", "size = \"8M\"\nrack = \"r1\""),
        node("two", "memory", "size = \"16M\"\nrack = \"r2\""),
        node("three", "memory", ""),
        node("four", "memory", "size = \"much\""),
        node("front", "compute", ""),
    ]
    .concat();
    fs::write(&path, &cluster).expect("the test's own folder");
    etcd.put(KEY, &cluster);
    let source = format!("etcd://{}/{KEY}", etcd.endpoint());

    let _one = Started::of_cluster(file, "one", &[], &address("one"));
    // The command line counts before the file.
    let _two = Started::of_cluster(&source, "two", &["--memory", "12M", "--rack", "r9"], &address("two"));
    let elsewhere = address("elsewhere");
    let _three = Started::of_cluster(file, "three", &["--memory", "8M", "--listen", &elsewhere], &elsewhere);

    let nodes = shown(&[file]);
    let of = |name: &str| nodes.iter().find(|node| node["name"] == name).expect("it is shown");
    assert_eq!(of("one")["lent_bytes"].as_u64(), Some(8 << 20));
    assert!(of("one").get("trouble").is_none());
    assert_eq!((&of("one")["rack"], &of("two")["rack"]), (&"r1".into(), &"r9".into()));
    assert_eq!(of("two")["lent_bytes"].as_u64(), Some(12 << 20));
    let trouble =
        "it lends 12 MiB, and its size here is 16M; it says that it is in rack r9, and in rack r2 here";
    assert_eq!(of("two")["trouble"], trouble);
    assert!(of("three").get("lent_bytes").is_none(), "it listens elsewhere");
    let table = String::from_utf8(run(&["show", file]).stdout).expect("text");
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).expect("it is shown");
    assert!(line("two ").ends_with(trouble), "{table}");
    assert!(!line("one ").contains("its size"), "{table}");

    let refused = |words: &str| {
        let mut command = Command::new(farmem_binary());
        assert_refusal(2, command.arg("node").args(words.split(' ')))
    };
    let of_file = |words: &str| refused(&format!("--cluster {file} {words}"));
    assert!(
        of_file("--name nine").contains("it has no node nine; its nodes are: one, two, three, four, front")
    );
    assert!(of_file("--name front").contains("front lends nothing there"));
    assert!(of_file("--name one --rack r+1").contains("write the name of a rack"));
    assert!(of_file("--name front --memory 8M").contains("front lends nothing there"));
    assert!(of_file("--name three").contains("say how much three lends"));
    assert!(of_file("--name four").contains("the size of four"));
    assert!(of_file("--memory 8M").contains("--name"));
    assert!(of_file("--name one --cluster-login x").contains("a file needs none"));
    assert!(refused("--memory 8M --name one").contains("--cluster"));
    assert!(refused("--memory 8M --cluster-ca x").contains("are for --cluster etcds"));
    assert!(refused("--cluster /nowhere/cluster.toml --name one").contains("No such file"));
}

#[test]
fn of_many_who_change_one_key_of_etcd_at_once_none_is_lost() {
    let etcd = Etcd::start();
    let comment = "# What the operators agreed on.\n";
    etcd.put(
        KEY,
        &format!("{comment}[[node]]\nname = \"first\"\nrole = \"memory\"\naddress = \"10.0.0.1:1000\"\n"),
    );
    let source = format!("etcd://127.0.0.1:1,{}/{KEY}", etcd.endpoint());
    thread::scope(|scope| {
        for number in 0..8 {
            let source = &source;
            scope.spawn(move || {
                let (name, address) = (format!("node-{number}"), format!("10.0.0.2:{}", 1000 + number));
                done(&["join", source, &name, "--address", &address]);
                done(&["drain", source, &name]);
            });
        }
    });
    let left = etcd.get(KEY);
    assert!(left.starts_with(comment), "{left}");
    assert_eq!(left.matches("[[node]]").count(), 9, "{left}");
    assert_eq!(left.matches("state = \"drain\"").count(), 8, "{left}");
    assert!(assert_refusal(2, &mut farmem(&["leave", &source, "nine"])).contains("no node nine"));
    let mut etcd = etcd;
    etcd.kill();
    assert!(assert_refusal(2, &mut farmem(&["drain", &source, "first"])).contains("etcd doesn't answer"));
}

#[test]
fn a_node_is_emptied_taken_out_and_stopped_while_redis_uses_it() {
    if !managed_runner() {
        return;
    }
    let mut nodes = [Node::start("128M"), Node::start("128M")];
    let scratch = Scratch::new();
    let path = scratch.file("cluster.toml");
    let file = path.to_str().expect("a name of the test's own");
    let one = |name: &str, node: &Node| {
        format!("[[node]]\nname = \"{name}\"\nrole = \"memory\"\naddress = \"{}\"\n", node.address())
    };
    fs::write(&path, one("one", &nodes[0])).expect("the test's own folder");
    let name = unique("cluster");
    let launcher = small_pool(&name).option("--cluster").option(&path);
    let (running, mut client) = loaded(&launcher);
    wait_for_pages_on_nodes(&name, 8 << 20);

    // No other node has room: it says so, and goes on.
    done(&["join", file, "two", "--address", "127.0.0.1:1"]);
    done(&["drain", file, "two"]);
    assert!(assert_refusal(2, &mut farmem(&["leave", file, "one"])).contains("still holds"));
    let stuck = run(&["drain", file, "one", "--wait", "--timeout", "1s"]);
    let said = String::from_utf8_lossy(&stuck.stderr).into_owned();
    assert_eq!(stuck.status.code(), Some(1), "{said}");
    assert!(said.contains("no other node of") && said.contains("one still holds"), "{said}");
    verify(&mut client, 0..KEYS, |_| 1);

    done(&["leave", file, "two", "--now"]);
    done(&["join", file, "three", "--address", nodes[1].address()]);
    let said = done(&["drain", file, "one", "--wait", "--timeout", "60s"]);
    assert!(said.contains("one holds 0 bytes of 128 MiB"), "{said}");
    done(&["leave", file, "one"]);
    nodes[0].kill();
    verify(&mut client, 0..KEYS, |_| 1);
    assert_eq!(text(&path).matches("[[node]]").count(), 1);
    end_with_nothing_lost(client, running);
}

#[test]
fn an_etcd_with_tls_and_a_password_is_asked_and_changed_and_strangers_are_refused_in_a_sentence() {
    let (scratch, others) = (Scratch::new(), Scratch::new());
    for folder in [&scratch, &others] {
        let made = Command::new(farmem_binary())
            .args(["node", "keygen", "--certificates"])
            .arg(folder.path())
            .args(["127.0.0.1"])
            .status();
        assert!(made.expect("farmem can be started").success());
    }
    let etcd = Etcd::start_secure(scratch.path(), "farmem:a secret: really");
    let source = format!("etcds://127.0.0.1:1,{}/{KEY}", etcd.endpoint());
    etcd.put(KEY, "[[node]]\nname = \"one\"\nrole = \"memory\"\naddress = \"127.0.0.1:1\"\n");
    let file = |scratch: &Scratch, name: &str| scratch.file(name).to_str().expect("own name").to_owned();
    let login = |name: &str, text: &str| {
        let path = file(&scratch, name);
        fs::write(&path, text).expect("the test's own folder");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).expect("own file");
        path
    };
    let (right, wrong) =
        (login("login", "farmem:a secret: really\n"), login("wrong", "farmem:a secret: not really\n"));
    let (ca, other_ca) = (file(&scratch, "authority.pem"), file(&others, "authority.pem"));

    done(&["drain", &source, "one", "--cluster-ca", &ca, "--cluster-login", &right]);
    assert!(etcd.get(KEY).contains("state = \"drain\""));
    assert_eq!(shown(&[&source, "--cluster-ca", &ca, "--cluster-login", &right])[0]["state"], "drain");

    let refused = |options: &[&str]| assert_refusal(2, &mut farmem(&[&["show", &source], options].concat()));
    assert!(refused(&[]).contains("give --cluster-ca"));
    let said = refused(&["--cluster-ca", &other_ca, "--cluster-login", &right]);
    assert!(said.contains("its certificate is by another authority"), "{said}");
    let said = refused(&["--cluster-ca", &ca, "--cluster-login", &wrong]);
    assert!(said.contains("etcd refuses: ") && said.contains("authentication failed"), "{said}");
    assert!(!said.contains("really"), "{said}");
    let said = refused(&["--cluster-ca", &ca]);
    assert!(said.contains("give --cluster-login"), "{said}");
    assert!(refused(&["--cluster-ca", &right]).contains("holds no certificate"));
    assert!(refused(&["--cluster-ca", &ca, "--cluster-login", &ca]).contains("no line USER:PASSWORD"));
    assert!(refused(&["--cluster-ca", "/nowhere/ca.pem"]).contains("/nowhere/ca.pem"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&right, mode).expect("own file");
    assert!(refused(&["--cluster-ca", &ca, "--cluster-login", &right]).contains("read by other users"));
    let plain = source.replace("etcds", "etcd");
    assert!(assert_refusal(2, &mut farmem(&["show", &plain, "--cluster-ca", &ca])).contains("etcds://"));
    let away = format!("etcd://10.0.0.1:2379/{KEY}");
    let said = assert_refusal(2, &mut farmem(&["show", &away, "--cluster-login", &wrong]));
    assert!(said.contains("readable on the way"), "{said}");

    let output = Command::new(farmem_binary())
        .args(["run", "--cluster-login", &wrong, "--", "true"])
        .output()
        .expect("farmem can be started");
    assert!(refusal(2, &output).contains("--cluster-login are for --cluster etcds"));
}

#[test]
fn an_etcd_that_asks_for_a_certificate_takes_the_right_one_and_others_are_refused_in_a_sentence() {
    let (scratch, others) = (Scratch::new(), Scratch::new());
    for folder in [&scratch, &others] {
        let made = Command::new(farmem_binary())
            .args(["node", "keygen", "--certificates"])
            .arg(folder.path())
            .args(["127.0.0.1"])
            .status();
        assert!(made.expect("farmem can be started").success());
    }
    let etcd = Etcd::start_for_clients(scratch.path());
    let node = Node::start("16M");
    etcd.put(
        KEY,
        &format!("[[node]]\nname = \"one\"\nrole = \"memory\"\naddress = \"{}\"\n", node.address()),
    );
    let source = format!("etcds://127.0.0.1:1,{}/{KEY}", etcd.endpoint());
    let ca = etcd.authority().to_str().expect("own name").to_owned();
    let options = |folder: &Scratch, role: &str| {
        let file = |end: &str| folder.file(&format!("{role}.{end}")).to_str().expect("own name").to_owned();
        let words = ["--cluster-ca", &ca, "--cluster-cert", &file("pem"), "--cluster-key", &file("key")];
        words.map(str::to_owned)
    };
    let right = options(&scratch, "client");
    let right = right.each_ref().map(String::as_str);

    done(&[&["join", &source, "two", "--address", "10.0.0.1:1000"], &right[..]].concat());
    done(&[&["leave", &source, "two", "--now"], &right[..]].concat());
    assert_eq!(shown(&[&[source.as_str()], &right[..]].concat())[0]["name"], "one");
    let run = |options: &[&str]| {
        let arguments = [&["run", "--cluster", &source], options, &["--", "true"]].concat();
        Command::new(farmem_binary()).args(arguments).output().expect("farmem can be started")
    };
    if managed_runner() {
        let output = run(&right);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    let refused = |options: &[&str]| {
        let shown = assert_refusal(2, &mut farmem(&[&["show", &source], options].concat()));
        if managed_runner() {
            let why = |said: &str| said.split_once("etcds://").expect("it is named").1.to_owned();
            assert_eq!(why(&refusal(2, &run(options))), why(&shown));
        }
        shown
    };
    let said = refused(&["--cluster-ca", &ca]);
    assert!(said.contains("etcd refuses: ") && said.contains("give --cluster-cert FILE"), "{said}");
    // By another authority, and by the right one for what is no client.
    for (folder, role) in [(&others, "client"), (&scratch, "node")] {
        let wrong = options(folder, role);
        let said = refused(&wrong.each_ref().map(String::as_str));
        assert!(said.contains("doesn't take the certificate of --cluster-cert"), "{said}");
    }
    // One with the key of another one.
    let mut torn = options(&scratch, "client");
    torn[5] = options(&others, "client")[5].clone();
    refused(&torn.each_ref().map(String::as_str));
    assert!(etcd.get(KEY).contains("name = \"one\""));
}

#[test]
fn nodes_are_followed_by_tls_and_password_also_when_etcd_has_forgotten_its_token() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let made = Command::new(farmem_binary())
        .args(["node", "keygen", "--certificates"])
        .arg(scratch.path())
        .args(["127.0.0.1"])
        .status();
    assert!(made.expect("farmem can be started").success());
    let login = scratch.file("login");
    fs::write(&login, "farmem:secret").expect("the test's own folder");
    fs::set_permissions(&login, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("own file");
    let mut etcd = Etcd::start_secure(scratch.path(), "farmem:secret");
    let nodes = [Node::start("128M"), Node::start("128M")];
    let one = |node: &Node| {
        let address = node.address();
        format!("[[node]]\nname = \"at {address}\"\nrole = \"memory\"\naddress = \"{address}\"\n")
    };
    etcd.put(KEY, &one(&nodes[0]));
    let name = unique("etcds");
    let launcher = small_pool(&name)
        .option("--cluster")
        .option(format!("etcds://{}/{KEY}", etcd.endpoint()))
        .option("--cluster-ca")
        .option(scratch.file("authority.pem"))
        .option("--cluster-login")
        .option(&login);
    let (running, mut client) = loaded(&launcher);
    let count = |wanted: u64| {
        farmem_tests::wait_for("a change of the nodes", || {
            (crate::far_redis::figure(&name, "nodes") == wanted).then_some(())
        });
    };
    count(1);
    etcd.put(KEY, &format!("{}{}", one(&nodes[0]), one(&nodes[1])));
    count(2);
    // Tokens do not survive it.
    etcd.kill();
    etcd.start_again();
    etcd.put(KEY, &one(&nodes[1]));
    count(1);
    verify(&mut client, 0..KEYS, |_| 1);
    end_with_nothing_lost(client, running);
}
