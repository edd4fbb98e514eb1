// A browser starts no worker for a page that was opened from a file. There, search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.queued = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<!doctype html><script src="${url}"></script>`;
      frame.addEventListener("load", () => this.start(frame.contentWindow));
      document.documentElement.append(frame);
    }

    start(inner) {
      this.inner = inner;
      // The script's messages go to the page, not to the frame.
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      for (const data of this.queued.splice(0)) this.postMessage(data);
    }

    postMessage(data) {
      if (this.inner) this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
      else this.queued.push(data);
    }

    terminate() {}
  };
}
