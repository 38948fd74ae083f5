// Which theme the reader has chosen; "auto" is the system's. Not a module, so that it runs before anything is painted.
try {
  const chosen = localStorage.getItem("aliquot-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing has the system's theme.
}
