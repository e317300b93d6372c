//! The supervisor as a service of the user's session: unit files for systemd and launchd.
//!
//! Rendering is pure; running `systemctl` or `launchctl` is the command line's affair.

use std::path::{Path, PathBuf};

use gascity_actors::model::sha256_hex;

use super::home::Home;

/// What a unit says of this installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The program.
    pub exe: PathBuf,
    /// The supervisor's home, if it is not the standard one.
    pub home: Option<PathBuf>,
    /// `PATH` as it was at the installation: agents need their programs.
    pub path: String,
}

/// A unit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// What the service manager calls it.
    pub name: String,
    /// Where it belongs.
    pub file: PathBuf,
    /// Its content.
    pub text: String,
}

impl Service {
    /// The service of `home`. `user_home` is the user's own directory.
    #[must_use]
    pub fn new(exe: PathBuf, home: &Home, user_home: &Path, path: String) -> Self {
        let is_standard = home.dir() == user_home.join(".gc");
        Self {
            exe,
            home: (!is_standard).then(|| home.dir().to_owned()),
            path,
        }
    }

    /// Tells services of several homes apart: the last part of its path, and a hash of all.
    fn slug(&self) -> Option<String> {
        let home = self.home.as_ref()?;
        let name = home.file_name().unwrap_or_default().to_string_lossy();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        let hash = sha256_hex(home.to_string_lossy().as_bytes());
        Some(format!("{}-{}", name.trim_matches('-'), &hash[..8]))
    }

    /// The user unit of systemd; `data_home` is `XDG_DATA_HOME` or `~/.local/share`.
    #[must_use]
    pub fn systemd(&self, data_home: &Path) -> Unit {
        let suffix = self.slug().map(|slug| format!("-{slug}"));
        let name = format!("gascity-supervisor{}.service", suffix.unwrap_or_default());
        let exe = quoted(&self.exe.to_string_lossy());
        let mut environment = String::new();
        if let Some(home) = &self.home {
            let home = quoted(&format!("GC_HOME={}", home.display()));
            environment.push_str(&format!("Environment={home}\n"));
        }
        let path = quoted(&format!("PATH={}", self.path));
        environment.push_str(&format!("Environment={path}\n"));
        let text = format!(
            "[Unit]
Description=Gas City supervisor

[Service]
Type=notify
NotifyAccess=main
ExecStart={exe} supervisor run --on-sigterm detach
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5s
WatchdogSec=60s
TimeoutStopSec=150s
# Agents live in this cgroup and outlive the supervisor.
KillMode=process
OOMPolicy=continue
{environment}
[Install]
WantedBy=default.target
"
        );
        let file = data_home.join("systemd/user").join(&name);
        Unit { name, file, text }
    }

    /// The agent of launchd.
    #[must_use]
    pub fn launchd(&self, user_home: &Path) -> Unit {
        let suffix = self.slug().map(|slug| format!(".{slug}"));
        let name = format!("com.gascity.supervisor{}", suffix.unwrap_or_default());
        let exe = escaped(&self.exe.to_string_lossy());
        let mut environment = String::new();
        if let Some(home) = &self.home {
            let home = escaped(&home.to_string_lossy());
            environment.push_str(&format!(
                "    <key>GC_HOME</key>\n    <string>{home}</string>\n"
            ));
        }
        let path = escaped(&self.path);
        environment.push_str(&format!(
            "    <key>PATH</key>\n    <string>{path}</string>\n"
        ));
        let text = format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{name}</string>
  <key>ProgramArguments</key>
  <array>
    <string>{exe}</string>
    <string>supervisor</string>
    <string>run</string>
    <string>--on-sigterm</string>
    <string>detach</string>
  </array>
  <key>EnvironmentVariables</key>
  <dict>
{environment}  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>Crashed</key>
    <true/>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
</dict>
</plist>
"#
        );
        let file = user_home
            .join("Library/LaunchAgents")
            .join(format!("{name}.plist"));
        Unit { name, file, text }
    }
}

/// A word of a unit file: quoted, and without meaning for specifiers and variables.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    format!("\"{escaped}\"")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard() -> Service {
        Service {
            exe: "/opt/gc".into(),
            home: None,
            path: "/usr/bin:/bin".into(),
        }
    }

    #[test]
    fn the_systemd_unit_keeps_agents_alive() {
        let unit = standard().systemd(Path::new("/u/.local/share"));
        assert_eq!(unit.name, "gascity-supervisor.service");
        let file = "/u/.local/share/systemd/user/gascity-supervisor.service";
        assert_eq!(unit.file, Path::new(file));
        let expected = r#"[Unit]
Description=Gas City supervisor

[Service]
Type=notify
NotifyAccess=main
ExecStart="/opt/gc" supervisor run --on-sigterm detach
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5s
WatchdogSec=60s
TimeoutStopSec=150s
# Agents live in this cgroup and outlive the supervisor.
KillMode=process
OOMPolicy=continue
Environment="PATH=/usr/bin:/bin"

[Install]
WantedBy=default.target
"#;
        assert_eq!(unit.text, expected);
    }

    #[test]
    fn another_home_has_a_unit_of_its_own_and_odd_characters_are_escaped() {
        let service = Service {
            exe: "/opt/my gc/100%".into(),
            home: Some("/srv/my \"gc\"".into()),
            path: "/a$b:/c&d".into(),
        };
        let unit = service.systemd(Path::new("/u"));
        assert_eq!(unit.name, "gascity-supervisor-my--gc-80f82820.service");
        for line in [
            r#"ExecStart="/opt/my gc/100%%" supervisor run --on-sigterm detach"#,
            r#"Environment="GC_HOME=/srv/my \"gc\"""#,
            r#"Environment="PATH=/a$$b:/c&d""#,
        ] {
            assert!(
                unit.text.lines().any(|l| l == line),
                "{line}\n{}",
                unit.text
            );
        }
        let plist = service.launchd(Path::new("/u"));
        assert!(plist.text.contains("<string>/a$b:/c&amp;d</string>"));
        assert!(plist.text.contains("<string>/srv/my \"gc\"</string>"));
    }

    #[test]
    fn the_launchd_agent_starts_at_login_and_after_crashes() {
        let unit = standard().launchd(Path::new("/Users/u"));
        let file = "/Users/u/Library/LaunchAgents/com.gascity.supervisor.plist";
        assert_eq!(unit.file, Path::new(file));
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>com.gascity.supervisor</string>
  <key>ProgramArguments</key>
  <array>
    <string>/opt/gc</string>
    <string>supervisor</string>
    <string>run</string>
    <string>--on-sigterm</string>
    <string>detach</string>
  </array>
  <key>EnvironmentVariables</key>
  <dict>
    <key>PATH</key>
    <string>/usr/bin:/bin</string>
  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>Crashed</key>
    <true/>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
</dict>
</plist>
"#;
        assert_eq!(unit.text, expected);
    }

    #[test]
    fn only_the_standard_home_is_left_out() {
        let env = super::super::home::Env {
            home: Some("/u".into()),
            ..Default::default()
        };
        let service = |flag: Option<&Path>| {
            let home = Home::resolve(flag, &env).unwrap();
            Service::new("/gc".into(), &home, Path::new("/u"), String::new())
        };
        assert_eq!(service(None).home, None);
        assert_eq!(service(Some(Path::new("/u/.gc"))).home, None);
        assert_eq!(service(Some(Path::new("/x"))).home, Some("/x".into()));
    }
}
