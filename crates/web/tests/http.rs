//! The site as a client sees it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farmem_web::{Address, Measure, Options, Site, Unit};

const TOKEN: &str = "open sesame";

fn change(process: u32, setting: &str) -> Result<String, String> {
    match setting {
        "local=1M" => Ok(format!("{process} has 1 MiB")),
        _ => Err("no such limit".to_owned()),
    }
}

/// A site on a port of its own, and where that is.
fn site(token: Option<&str>, has_page: bool) -> String {
    let measure =
        Measure { name: "test_free", meaning: "Free", unit: Unit::Bytes, is_total: false, value: 3.0 };
    let options = Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        names: Vec::new(),
        token: token.map(str::to_owned),
        change: Some(change),
        has_page,
        shows_applications: false,
        measures: Arc::new(Mutex::new(vec![measure])),
    };
    let site = Site::bind(options).unwrap();
    let Address::Tcp(address) = site.address().unwrap() else { panic!("it has a port") };
    site.serve_beside().unwrap();
    address.to_string()
}

/// Sends a request, and gives back all of the answer.
fn ask(address: &str, request: &str, headers: &[&str], body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let host = if headers.iter().any(|header| header.starts_with("Host")) {
        String::new()
    } else {
        format!("Host: {address}\r\n")
    };
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\n{host}{more}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status")
}

#[test]
fn page_data_and_metrics_are_there() {
    let address = site(None, true);
    let page = ask(&address, "GET /", &[], "");
    assert!(status(&page) == 200 && page.contains("default-src 'none'") && page.contains("<html"), "{page}");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let own = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(outside), "the page asks for nothing from elsewhere: {outside}");
    }
    let state = ask(&address, "GET /api/state?since=0", &[], "");
    assert!(status(&state) == 200 && state.contains("\"is_writable\":false"), "{state}");
    let metrics = ask(&address, "GET /metrics", &[], "");
    assert!(
        metrics.contains("application/openmetrics-text") && metrics.contains("farmem_test_free_bytes 3.0")
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
}

#[test]
fn why_an_application_cannot_be_looked_into_is_a_sentence() {
    let address = site(None, true);
    // No process has this number.
    let nobody = u32::MAX;
    for request in [
        format!("GET /api/processes?application={nobody}"),
        format!("GET /api/regions?application={nobody}&process=1"),
    ] {
        let answer = ask(&address, &request, &[], "");
        assert!(status(&answer) == 422 && answer.contains("no application named"), "{answer}");
    }
    assert_eq!(status(&ask(&address, "GET /api/processes", &[], "")), 400);
    assert_eq!(status(&ask(&address, "GET /api/regions?application=1&process=x", &[], "")), 400);
}

#[test]
fn where_there_is_no_page_there_are_metrics_alone() {
    let address = site(None, false);
    assert_eq!(status(&ask(&address, "GET /", &[], "")), 404);
    for path in ["/api/state", "/api/processes?application=1", "/api/regions?application=1&process=1"] {
        assert_eq!(status(&ask(&address, &format!("GET {path}"), &[], "")), 404, "{path}");
    }
    assert_eq!(status(&ask(&address, "GET /metrics", &[], "")), 200);
}

#[test]
fn limits_change_for_who_knows_the_token_and_for_nobody_else() {
    let wanted = "{\"process\":7,\"setting\":\"local=1M\"}";
    let authorization = format!("Authorization: Bearer {TOKEN}");
    let address = site(None, true);
    assert_eq!(status(&ask(&address, "POST /api/set", &[&authorization], wanted)), 403);
    let address = site(Some(TOKEN), true);
    assert_eq!(status(&ask(&address, "POST /api/set", &[], wanted)), 401);
    assert_eq!(status(&ask(&address, "POST /api/set", &["Authorization: Bearer open"], wanted)), 401);
    let answer = ask(&address, "POST /api/set", &[&authorization], wanted);
    assert!(status(&answer) == 200 && answer.ends_with("7 has 1 MiB"), "{answer}");
    let refused = ask(&address, "POST /api/set", &[&authorization], &wanted.replace("local", "lokal"));
    assert!(status(&refused) == 422 && refused.ends_with("no such limit"), "{refused}");
    assert_eq!(status(&ask(&address, "POST /api/set", &[&authorization], "{}")), 400);
    assert_eq!(status(&ask(&address, "POST /api/set", &[&authorization], &" ".repeat(5000))), 413);
    assert_eq!(status(&ask(&address, "GET /api/set", &[&authorization], "")), 405);
}

#[test]
fn what_was_meant_for_another_host_is_refused() {
    let address = site(None, true);
    for request in ["GET /", "GET /api/state", "GET /api/regions?application=1&process=1", "GET /metrics"] {
        assert_eq!(status(&ask(&address, request, &["Host: example.org"], "")), 421, "{request}");
    }
}

#[test]
fn other_machines_are_let_in_by_a_token_alone() {
    let open = |token: Option<&str>| Options {
        listen: "0.0.0.0:0".parse().unwrap(),
        names: Vec::new(),
        token: token.map(str::to_owned),
        change: None,
        has_page: true,
        shows_applications: false,
        measures: Arc::default(),
    };
    assert!(Site::bind(open(None)).unwrap_err().to_string().contains("--token"));
    let site = Site::bind(open(Some(TOKEN))).unwrap();
    let Address::Tcp(address) = site.address().unwrap() else { panic!("it has a port") };
    site.serve_beside().unwrap();
    let address = format!("127.0.0.1:{}", address.port());
    assert_eq!(status(&ask(&address, "GET /", &[], "")), 200, "the page itself shows nothing");
    for request in ["GET /api/processes?application=1", "GET /api/regions?application=1&process=1"] {
        assert_eq!(status(&ask(&address, request, &[], "")), 401, "{request}");
    }
    for request in ["GET /api/state", "GET /metrics"] {
        assert_eq!(status(&ask(&address, request, &[], "")), 401, "{request}");
        let authorization = format!("Authorization: Bearer {TOKEN}");
        assert_eq!(status(&ask(&address, request, &[&authorization], "")), 200, "{request}");
    }
}

#[test]
fn metrics_alone_are_for_who_asks_by_an_address_or_a_name_that_was_given() {
    let options = Options {
        listen: "0.0.0.0:0".parse().unwrap(),
        names: vec!["metrics.example.org".parse().unwrap()],
        token: None,
        change: None,
        has_page: false,
        shows_applications: false,
        measures: Arc::default(),
    };
    let site = Site::bind(options).unwrap();
    let Address::Tcp(address) = site.address().unwrap() else { panic!("it has a port") };
    site.serve_beside().unwrap();
    let address = format!("127.0.0.1:{}", address.port());
    for host in ["10.0.0.7:7432", "metrics.example.org:7432"] {
        let answer = ask(&address, "GET /metrics", &[&format!("Host: {host}")], "");
        assert!(status(&answer) == 200 && answer.ends_with("# EOF\n"), "{answer}");
    }
    // A page of somebody else's whose name was made to lead here.
    assert_eq!(status(&ask(&address, "GET /metrics", &["Host: example.org"], "")), 421);
    assert_eq!(status(&ask(&address, "GET /api/state", &["Host: 10.0.0.7"], "")), 404);
}

#[test]
fn metrics_come_by_a_socket_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.socket");
    let options = Options {
        listen: Address::Unix(path.clone()),
        names: Vec::new(),
        token: None,
        change: None,
        has_page: false,
        shows_applications: false,
        measures: Arc::default(),
    };
    Site::bind(options).unwrap().serve_beside().unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("# EOF"), "{answer}");
}
