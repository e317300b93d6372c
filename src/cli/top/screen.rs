//! The terminal of `gc top`: taken over, drawn on, and given back whatever happens.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use super::frame::Line;
use super::keys::Key;
use super::rows::Tone;

/// The terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal as long as it is ours. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Screen {
    colour: bool,
    shown: Vec<Line>,
}

impl Screen {
    /// Takes the terminal over. A panic gives it back before it says what happened.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn take(colour: bool) -> io::Result<Self> {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            told(panic);
        }));
        let mut screen = Self {
            colour,
            shown: Vec::new(),
        };
        screen.enter()?;
        Ok(screen)
    }

    /// The same once more, after [`Self::leave`].
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.shown.clear();
        TAKEN.store(true, Relaxed);
        terminal::enable_raw_mode()?;
        execute!(
            io::stdout(),
            EnterAlternateScreen,
            Hide,
            Clear(ClearType::All)
        )
    }

    /// Gives the terminal back for a while.
    pub(super) fn leave(&self) {
        give_back();
    }

    /// Columns and lines.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn size() -> io::Result<(usize, usize)> {
        let (width, height) = terminal::size()?;
        Ok((width.into(), height.into()))
    }

    /// Everything is to be drawn anew.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
    }

    /// Draws the lines that are not there yet.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn draw(&mut self, lines: Vec<Line>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        if self.shown.len() != lines.len() {
            queue!(out, Clear(ClearType::All))?;
            self.shown.clear();
        }
        for (row, line) in (0u16..).zip(&lines) {
            if self.shown.get(usize::from(row)) == Some(line) {
                continue;
            }
            queue!(out, MoveTo(0, row))?;
            self.set(&mut out, line.tone)?;
            queue!(
                out,
                Print(&line.text),
                SetAttribute(Attribute::Reset),
                ResetColor
            )?;
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        self.shown = lines;
        out.flush()
    }

    fn set(&self, out: &mut impl io::Write, tone: Tone) -> io::Result<()> {
        let colour = match tone {
            Tone::Warn => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
            _ => None,
        };
        if let Some(colour) = colour.filter(|_| self.colour) {
            queue!(out, SetForegroundColor(colour))?;
        }
        match tone {
            Tone::Title | Tone::Head => queue!(out, SetAttribute(Attribute::Bold)),
            Tone::Selected => queue!(out, SetAttribute(Attribute::Reverse)),
            Tone::Dim => queue!(out, SetAttribute(Attribute::Dim)),
            Tone::Plain | Tone::Warn | Tone::Bad => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if TAKEN.swap(false, Relaxed) {
        // A terminal that is gone needs nothing.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// What the terminal said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    /// Ctrl-C, which is a key here.
    Interrupt,
    Resized,
}

/// What an event of the terminal means, if anything.
pub(super) fn input(event: &Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key),
        Event::Resize(..) => Some(Input::Resized),
        _ => None,
    }
}

fn key_of(key: &KeyEvent) -> Option<Input> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if control => return Some(Input::Interrupt),
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    };
    Some(Input::Key(key))
}
