use std::os::unix::fs::PermissionsExt;

use super::*;

fn env(gc_home: &str, xdg: &str, home: &str) -> Env {
    let some = |text: &str| Some(OsString::from(text));
    Env {
        gc_home: some(gc_home),
        xdg_runtime_dir: some(xdg),
        home: some(home),
    }
}

fn places(flag: Option<&str>, env: &Env) -> (String, String) {
    let home = Home::resolve(flag.map(Path::new), env).unwrap();
    (
        home.dir().display().to_string(),
        home.runtime_dir().display().to_string(),
    )
}

#[test]
fn the_flag_and_the_variables_place_the_directories() {
    let check = |flag, vars: [&str; 3], dir: &str, runtime: &str| {
        let env = env(vars[0], vars[1], vars[2]);
        assert_eq!(places(flag, &env), (dir.into(), runtime.into()), "{vars:?}");
    };
    check(None, ["/g", "/run/u", "/home/u"], "/g", "/g");
    check(Some("/f"), ["/g", "/run/u", "/home/u"], "/f", "/f");
    check(None, ["", "/run/u", "/h"], "/h/.gc", "/run/u/gc");
    check(None, ["", "", "/h"], "/h/.gc", "/h/.gc");
    check(None, ["", "relative", "/h"], "/h/.gc", "/h/.gc");
    assert!(matches!(
        Home::resolve(None, &Env::default()),
        Err(HomeError::NoHome)
    ));
}

#[test]
fn directories_are_created_private() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::resolve(Some(&dir.path().join("a/home")), &Env::default()).unwrap();
    home.create().unwrap();
    let mode = fs::metadata(home.dir()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_runtime_dir_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let home = Home::resolve(Some(dir.path()), &Env::default()).unwrap();
    let expected = format!("runtime dir {} is not private", dir.path().display());
    assert_eq!(home.create().unwrap_err().to_string(), expected);
}

#[test]
fn long_socket_paths_are_shortened_and_stay_distinct() {
    let short = Path::new("/run/user/1000/gc/supervisor.sock");
    assert_eq!(socket_path(short), short);
    let exactly = PathBuf::from(format!("/{}", "x".repeat(99)));
    assert_eq!(socket_path(&exactly), exactly);
    let (a, b) = ("a".repeat(100), "b".repeat(100));
    let (a, b) = (
        socket_path(&Path::new("/").join(a)),
        socket_path(&Path::new("/").join(b)),
    );
    assert_ne!(a, b);
    assert_eq!(a.parent().unwrap(), short_socket_dir());
    assert_eq!(a.file_name().unwrap().len(), 16 + ".sock".len());
}

#[test]
fn clients_try_the_address_file_and_then_the_standard_places() {
    let dir = tempfile::tempdir().unwrap();
    let env = env("", "/run/u", dir.path().to_str().unwrap());
    let home = Home::resolve(None, &env).unwrap();
    home_dir_exists(&home);
    let addr = Addr {
        socket: "/elsewhere/gc/supervisor.sock".into(),
        pid: 7,
        api_url: None,
    };
    addr.write(&home.addr()).unwrap();
    let standard = [
        PathBuf::from("/run/u/gc/supervisor.sock"),
        home.dir().join("supervisor.sock"),
    ];
    assert_eq!(home.client_sockets()[0], addr.socket);
    assert_eq!(home.client_sockets()[1..], standard);

    Addr {
        pid: 8,
        ..addr.clone()
    }
    .remove(&home.addr());
    assert!(home.addr().exists(), "written by another process");
    addr.remove(&home.addr());
    assert_eq!(home.client_sockets(), standard);
}

fn home_dir_exists(home: &Home) {
    files::create_private_dir(home.dir()).unwrap();
}
